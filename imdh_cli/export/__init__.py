"""A model in other languages than its file: labels where the data are."""
