"""netfold's own collectives: a file each, named after its kind; a new file is found."""
