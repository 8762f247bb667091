"""Matrices of rows on their way to the learner: cut into portions, put in order, kept, fetched ahead."""
