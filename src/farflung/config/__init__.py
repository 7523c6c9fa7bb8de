"""Settings of the commands: frozen dataclasses that check their values, without importing JAX."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
