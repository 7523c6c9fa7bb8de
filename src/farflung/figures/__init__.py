"""Results as matplotlib figures, which the caller shows or saves; matplotlib is imported when the first one is drawn."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
