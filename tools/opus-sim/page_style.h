// How a report's page looks. Colours are Okabe and Ito's, which people tell apart whatever their eyes are; in the dark lighter ones.
#pragma once

namespace opus::job {

inline constexpr char kPageStyle[] = R"css(
:root{color-scheme:light dark;--paper:#fdfdfb;--panel:#fff;--ink:#1c1f23;--soft:#5a626c;--line:#dcdfe3;--grid:#eceef0;
--good:#00664a;--good-bg:#e2f3ec;--warn:#8a5200;--warn-bg:#fdf1dc;--bad:#a33a00;--bad-bg:#fcebe2;
--c0:#0072b2;--c1:#e69f00;--c2:#009e73;--c3:#cc79a7;--c4:#56b4e9;--c5:#a08a00;--c6:#7a5195;--c7:#9aa1a9;
--compute:#b9c0c8;--host:#d9dde2;--onnode:#56b4e9;--operation:#0072b2;--dark:#1c1f23;--occupied:#e69f00;--control:#cc79a7;
--hidden:#8fc9b5;--waited:#d55e00;--busy:#0072b2;--idle:#a9d3ee;--unlit:#e4e7ea}
@media (prefers-color-scheme:dark){:root{--paper:#14171a;--panel:#1b1f23;--ink:#e8eaed;--soft:#a3abb5;--line:#343a41;--grid:#262b30;
--good:#6fd3b0;--good-bg:#14302a;--warn:#f0bd62;--warn-bg:#33290f;--bad:#ff9c66;--bad-bg:#3a2115;
--c0:#4aa8e0;--c1:#f0b432;--c2:#2fc598;--c3:#e096c0;--c4:#8fd0f7;--c5:#d8c53a;--c6:#b493d6;--c7:#7d858e;
--compute:#565e67;--host:#3d444b;--onnode:#8fd0f7;--operation:#4aa8e0;--dark:#f4f5f6;--occupied:#f0b432;--control:#e096c0;
--hidden:#2f7d66;--waited:#ff8b4d;--busy:#4aa8e0;--idle:#2a5674;--unlit:#30363c}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif;
font-variant-numeric:tabular-nums}
main,header.top,footer{max-width:1120px;margin:0 auto;padding:0 24px}
header.top{padding-top:40px}
h1{font-size:1rem;font-weight:600;color:var(--soft);margin:0 0 14px;letter-spacing:.01em}
.verdict{font-size:1.5rem;line-height:1.35;font-weight:600;margin:0;padding:18px 22px;border-radius:10px;border-left:6px solid;text-wrap:pretty}
.verdict.yes{background:var(--good-bg);border-color:var(--good)}
.verdict.changes{background:var(--warn-bg);border-color:var(--warn)}
.verdict.no{background:var(--bad-bg);border-color:var(--bad)}
.facts{display:flex;flex-wrap:wrap;gap:10px 34px;margin:22px 0 8px;padding:0}
.facts div{display:flex;flex-direction:column}
.facts dt{font-size:.78rem;color:var(--soft)}
.facts dd{margin:0;font-weight:600}
nav{margin:18px 0 0;font-size:.9rem;display:flex;flex-wrap:wrap;gap:4px 16px;border-top:1px solid var(--line);padding-top:12px}
a{color:var(--c0)}
section{margin:44px 0 0}
h2{font-size:1.25rem;margin:0 0 6px;line-height:1.3}
h3{font-size:1rem;margin:20px 0 4px}
p{margin:6px 0 12px;max-width:76ch;text-wrap:pretty}
.changes li{margin:6px 0;max-width:82ch}
.soft{color:var(--soft);font-size:.9rem}
figure{margin:14px 0;background:var(--panel);border:1px solid var(--line);border-radius:10px;padding:14px 16px}
figcaption{font-size:.88rem;color:var(--soft);margin-top:6px}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{font:12px system-ui,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif;fill:var(--ink);font-variant-numeric:tabular-nums}
svg .soft,svg .tick{fill:var(--soft);font-size:12px}
svg .grid{stroke:var(--grid);stroke-width:1}
svg .axis{stroke:var(--line);stroke-width:1}
svg .mark{stroke:var(--soft);stroke-width:1;stroke-dasharray:3 4;opacity:.45}
svg .curve{fill:none;stroke-width:2.2;stroke-linejoin:round;stroke-linecap:round}
svg .halo{paint-order:stroke;stroke:var(--panel);stroke-width:4px;stroke-linejoin:round}
.pair{display:grid;grid-template-columns:minmax(0,1fr);gap:0 26px}
@media (min-width:900px){.pair{grid-template-columns:minmax(0,1fr) fit-content(52%);align-items:start}}
.scroll{overflow-x:auto;margin:14px 0}
table{border-collapse:collapse;font-size:.88rem;width:100%}
caption{text-align:left;font-size:.85rem;color:var(--soft);padding:0 0 6px}
th,td{padding:5px 10px 5px 0;text-align:right;border-bottom:1px solid var(--grid);vertical-align:baseline;white-space:nowrap}
th:first-child,td.text{text-align:left}
td.text,th .soft{white-space:normal}
thead th{font-weight:600;color:var(--soft);border-bottom:1px solid var(--line);white-space:normal;vertical-align:bottom}
tbody th{font-weight:500}
tr.chosen th,tr.chosen td{background:var(--good-bg)}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:.85rem;margin:8px 0 0;padding:0;list-style:none}
.legend i{display:inline-block;width:14px;height:11px;border-radius:2px;margin-right:6px;vertical-align:-1px}
.ok{color:var(--good);font-weight:600}.not{color:var(--bad);font-weight:600}
footer{margin-top:52px;padding-bottom:48px;color:var(--soft);font-size:.85rem}
footer p{max-width:none}
@media print{figure,section{break-inside:avoid}}
)css";

}  // namespace opus::job
