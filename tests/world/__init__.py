# SPDX-License-Identifier: Apache-2.0
"""The test world: a small internet in network namespaces of its own. See world.py."""
from .world import World

__all__ = ["World"]
