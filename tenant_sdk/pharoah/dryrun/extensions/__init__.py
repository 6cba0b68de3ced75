"""Libraries of CUDA kernels, and what stands for them in a dry run where they cannot be imported.

One module for each library, with one `Extension`. What stands for a function has its documented signature and computes
the same with operators of torch: a dry run needs the structure and the shapes. Modules import torch only inside
functions.
"""

from pharoah.dryrun.extensions._extension import GROUP, Extension, extensions, missing_extension, substitute

__all__ = ["GROUP", "Extension", "extensions", "missing_extension", "substitute"]
