"""A minute on the machine before any training: is it what its file promises?"""
