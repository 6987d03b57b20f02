"""Implementations of other people, each with the reference's weights; see ``utils/first_try.py``.

None of them was used to build the tool. ``Port.reloaded`` names the packages whose forward code is edited at random.
"""

from __future__ import annotations

from unseen import measures, pages, scenes, tones

PORTS = (*measures.PORTS, *pages.PORTS, *scenes.PORTS, *tones.PORTS)
