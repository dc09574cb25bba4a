"""own: a user's program reads its data itself. No study can name it (`core/registry.py`)."""

FORMS: tuple[str, ...] = ()
FAMILY = "own"
LEARNS = True
DEVICE: str | None = None
PACKAGE: str | None = None
INSTALL = ""
DISTRIBUTION: str | None = None
