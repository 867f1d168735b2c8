"""Who takes part: absent, late, duplicate, and disagreeing about the job."""
