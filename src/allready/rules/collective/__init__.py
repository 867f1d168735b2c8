"""The staged collectives: stopped, wrong."""
