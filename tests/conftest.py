import os

import hypothesis
import jax
import matplotlib as mpl

# What is compiled runs for moments only: half as thoroughly takes less time.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=1"
# Two devices, so that every test of training is one of sharding too.
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")
mpl.use("agg")
hypothesis.settings.register_profile("farflung", deadline=None, max_examples=50)
hypothesis.settings.register_profile(
    "long", deadline=None, max_examples=10_000, suppress_health_check=list(hypothesis.HealthCheck), print_blob=True
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "farflung"))
