"""PyTorch 2.13, which says only in private modules whether torch.compile finds a C++ compiler.

Without a guard: where the modules have other names, torch.compile is tried, and says itself what is
missing.
"""


def has_compiler() -> bool:
    """Tell whether there is a compiler for CPUs; True where PyTorch does not say."""
    try:
        from torch._inductor.cpp_builder import get_cpp_compiler
        from torch._inductor.exc import InvalidCxxCompiler
    except ImportError:
        return True
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return False
    return True
