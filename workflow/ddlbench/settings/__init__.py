"""The files that people write, read and checked: config, studies, machines, recipes."""
