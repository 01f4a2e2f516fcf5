"""Question-answer pairs about the passages of documents, written by a model."""
