"""Reports of replays: one HTML page, or the same pictures as SVG and PDF files."""

from simulate.report.page import write_report
from simulate.report.plots import write_plots

__all__ = ["write_plots", "write_report"]
