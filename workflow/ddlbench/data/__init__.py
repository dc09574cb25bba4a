"""Pictures from their source to prepared forms on disk, and back to be verified. Members:
`datasets/` and `forms/`.
"""
