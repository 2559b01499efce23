"""The style sheet of the page: light, dark, and print; system fonts only."""
# ruff: noqa: E501  style rules read best one a line

from __future__ import annotations

from simulate.report.drawing.palette import DARK, JOBS, LIGHT

# The style sheet has one rule a tab; more alternatives than this would need more rules.
MOST_TABS = 30

BASE = """
:root{color-scheme:light dark;--ground:#fff;--card:#fff;--ink:#1b1f24;--soft:#57606a;--faint:#e4e7eb;
--rule:#c9ced5;--idle:#eceff2;--accent:#0b5394;--note:#fff8e5;--note-rule:#d9a400;--best:#eef5fb;--bar:.85}
@media (prefers-color-scheme:dark){:root{--ground:#14171b;--card:#14171b;--ink:#e6e9ed;--soft:#9aa4af;
--faint:#2a2f36;--rule:#474e58;--idle:#23282e;--accent:#7db7ea;--note:#2a2413;--note-rule:#b08a1e;--best:#1b2a38}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",
Roboto,"Helvetica Neue",Arial,"DejaVu Sans",sans-serif;font-variant-numeric:tabular-nums}
main{max-width:1104px;margin:0 auto;padding:36px 32px 64px}
h1{font-size:27px;line-height:1.2;margin:0 0 6px;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:18px;margin:44px 0 10px;padding-bottom:6px;border-bottom:1px solid var(--rule)}
h3{font-size:15px;margin:0}
p{margin:0 0 10px}
.lead{color:var(--soft);margin:0 0 20px}
.facts{display:grid;grid-template-columns:max-content 1fr max-content 1fr;gap:5px 18px;margin:0;
padding:14px 0;border-top:2px solid var(--ink);border-bottom:1px solid var(--rule)}
.facts dt{color:var(--soft)}
.facts dd{margin:0;overflow-wrap:anywhere}
.warnings{background:var(--note);border-left:3px solid var(--note-rule);padding:10px 16px;margin:18px 0}
.warnings ul{margin:4px 0 0;padding-left:18px}
.findings{margin:0;padding-left:20px;font-size:16px;max-width:84ch}
.findings li{margin:5px 0}
figure{margin:34px 0 0;break-inside:avoid-page}
figure.tall{break-inside:auto}
figcaption{max-width:96ch;font-size:13.5px;color:var(--soft);margin-top:8px}
figcaption b{color:var(--ink)}
.absent{border:1px dashed var(--rule);padding:12px 16px;color:var(--soft);font-size:14px}
.absent b{color:var(--ink)}
.legend{display:flex;flex-wrap:wrap;gap:4px 22px;list-style:none;margin:0 0 10px;padding:0;font-size:13.5px}
.legend li{display:flex;align-items:center;gap:8px;overflow-wrap:anywhere}
.panels{display:grid;grid-template-columns:1fr 1fr;gap:22px 24px}
.panels svg.wide{grid-column:1/-1}.stacked svg:first-child{grid-row:1/span 2}
svg{display:block;overflow:visible}
.panels svg,.gantt svg{width:100%;height:auto}
.swatch{flex:none;width:26px;height:12px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:13.5px;margin:6px 0;min-width:60%}
caption{text-align:left;color:var(--soft);font-size:13.5px;padding:0 0 6px}
th,td{padding:4px 10px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--faint)}
thead th{border-bottom:1px solid var(--ink);border-top:2px solid var(--ink);font-weight:600;white-space:normal;
vertical-align:bottom;min-width:64px}
th:first-child,td:first-child{text-align:left;padding-left:2px}
tbody th{font-weight:500;white-space:normal;overflow-wrap:anywhere;min-width:5em;max-width:190px}
tbody:last-child tr:last-child>*{border-bottom:2px solid var(--ink)}
tr.group th{color:var(--soft);font-weight:600;padding-top:10px}
td i{display:inline-block;width:1.1em;text-align:right;font-style:normal;color:var(--soft)}
td.best{font-weight:700;background:var(--best)}
td.all{text-align:center!important;color:var(--soft)}
td.text,th.text{text-align:left;white-space:normal;overflow-wrap:anywhere}
.key{font-size:13px;color:var(--soft)}
details{margin:10px 0 0}
summary{cursor:pointer;color:var(--accent);font-size:13.5px}
code{font:13px/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
footer{margin-top:48px;padding-top:10px;border-top:1px solid var(--rule);color:var(--soft);font-size:13px}
.tabs>input{position:absolute;opacity:0;pointer-events:none}
.tabs>nav{display:flex;flex-wrap:wrap;gap:4px;margin:0 0 12px}
.tabs>nav label{padding:3px 14px;border:1px solid var(--rule);border-radius:15px;cursor:pointer;font-size:13.5px;
color:var(--soft);user-select:none}
.tabs>nav label:hover{color:var(--ink)}
.tabs>.panes>.pane{display:none}
.pane>h3{display:none}
.loads>nav{position:sticky;top:0;z-index:2;background:var(--ground);padding:10px 0;border-bottom:1px solid var(--rule)}
text{fill:var(--ink);font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"DejaVu Sans",sans-serif;
font-variant-numeric:tabular-nums}
.title{font-size:13.5px;font-weight:600}
.name,.tick,.small,.remark{fill:var(--soft)}
.small{font-size:11px}
.remark{font-size:11px}
.node{font-size:11px;fill:var(--soft)}
.job{font-size:10px;fill:#14171b;pointer-events:none}
text.best{font-weight:700}
.direct{fill:var(--c);font-weight:600}
.grid{stroke:var(--faint);stroke-width:1;fill:none;shape-rendering:crispEdges}
.axis{stroke:var(--soft);stroke-width:1;fill:none;shape-rendering:crispEdges}
.reference{stroke:var(--soft);stroke-width:1;stroke-dasharray:4 3;fill:none}
.line{stroke:var(--c);stroke-width:1.8;fill:none;stroke-linejoin:round}
.whisker{stroke:var(--c);stroke-width:1.2;fill:none}
.mark{fill:var(--c);stroke:var(--ground);stroke-width:1}
.cross{fill:none;stroke:var(--c);stroke-width:2}
.area{fill:var(--c);fill-opacity:.75;stroke:none}
.thin{stroke:var(--c);stroke-width:1.2}
.thick{stroke:var(--c);stroke-width:5;stroke-opacity:.55}
.bar{fill:var(--c);fill-opacity:var(--bar)}
.interval{stroke:var(--ink);stroke-width:1.3;fill:none}
.idle{fill:var(--idle)}
.gang{stroke:#14171b;stroke-width:1;fill:none;pointer-events:none;stroke-linecap:round;stroke-opacity:.5}.dots{stroke-width:4;stroke-opacity:.9}
.chosen>path:first-of-type{stroke:var(--ink);stroke-width:2}.tail{fill:none;stroke:var(--ink);stroke-width:1.3;stroke-dasharray:4 3}
.jobs:hover>g{opacity:.22}
.jobs:hover>g:hover{opacity:1}
@media screen and (max-width:760px){main{padding:20px 14px 40px}.panels{grid-template-columns:1fr}
.facts{grid-template-columns:max-content 1fr}.panels svg.wide,.gantt svg{min-width:720px}.panels svg.half{max-width:508px}
.panels,.gantt{overflow-x:auto}}
@page{size:A4 landscape;margin:12mm}
"""

PRINT = """
@media print{:root{color-scheme:light;--ground:#fff;--card:#fff;--ink:#000;--soft:#444;--faint:#ddd;--rule:#999;
--idle:#eee;--accent:#000;--note:#fff;--best:#f0f0f0}body{font-size:11pt}main{padding:0;max-width:none}
.tabs>nav{display:none}.tabs>.panes>.pane{display:block!important}.pane>h3{display:block;margin:14px 0 8px}
summary,details:not([open]){display:none}svg,tr,.pane>h3{break-inside:avoid}.pane>h3{break-after:avoid}.gantt svg{max-height:140mm}.scroll,figcaption,.findings{break-inside:avoid}figcaption,.key{font-size:9.5pt}.scroll{overflow:visible}table{font-size:9.5pt}h2{break-after:avoid}.bar,.area,.idle,.panels path,.gantt path{print-color-adjust:exact;
-webkit-print-color-adjust:exact}}
"""


def style_sheet() -> str:
    """All of it, with the series colours and the tab rules written out."""
    light = "".join(f".c{i}{{--c:{c}}}" for i, c in enumerate(LIGHT))
    dark = "".join(f".c{i}{{--c:{c}}}" for i, c in enumerate(DARK))
    jobs = "".join(f".j{i}{{fill:{c}}}" for i, c in enumerate(JOBS))
    tabs = "".join(
        f".tabs>input:nth-of-type({n}):checked~.panes>.pane:nth-child({n}){{display:block}}"
        f".tabs>input:nth-of-type({n}):checked~nav>label:nth-child({n})"
        "{color:var(--ground);background:var(--ink);border-color:var(--ink)}"
        f".tabs>input:nth-of-type({n}):focus-visible~nav>label:nth-child({n})"
        "{outline:2px solid var(--accent);outline-offset:2px}"
        for n in range(1, MOST_TABS + 1)
    )
    text = (
        BASE
        + light
        + jobs
        + "@media (prefers-color-scheme:dark){"
        + dark
        + "}"
        + tabs
        + "@media print{"
        + light
        + "}"
        + PRINT
    )
    return text.replace("\n", "")
