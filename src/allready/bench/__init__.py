"""What `allready bench` does with numbers: files in the forms of others, and curves of several runs."""
