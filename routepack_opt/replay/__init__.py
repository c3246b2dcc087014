"""Routing replay in every wire form, read into per-sample expert counts."""

from routepack_opt.replay.detection import FORMS
from routepack_opt.replay.reading import read
from routepack_opt.replay.result import ReplayCounts, ReplayReport

__all__ = ["FORMS", "ReplayCounts", "ReplayReport", "read"]
