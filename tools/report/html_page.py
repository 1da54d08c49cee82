"""An HTML page that needs no other file: its style, its frame and its sections."""

from __future__ import annotations

from html import escape

_STYLE = """
body{font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;color:#222;background:#f3f4f6;
margin:0}
main{max-width:1180px;margin:0 auto;padding:18px}
h1{font-size:24px;margin:4px 0 2px}h2{font-size:17px;margin:0 0 4px}
p{margin:2px 0 10px;color:#555;font-size:14px}p.verdict{font-size:17px;color:#111;margin:4px 0 12px}
section{background:#fff;border-radius:8px;padding:14px 20px 10px;margin:14px 0;box-shadow:0 1px 2px #0002}
p.banner{background:#fff3cd;border-left:4px solid #e0a800;padding:6px 12px;color:#5c4700}
.facts{display:flex;flex-wrap:wrap;gap:8px 26px;margin:8px 0 0}
.facts div{font-size:13px;color:#777}.facts b{display:block;font-size:19px;color:#111;font-weight:600}
.two{display:grid;gap:10px;grid-template-columns:repeat(auto-fill,minmax(min(500px,100%),1fr))}
section{overflow-x:auto}section>svg{min-width:760px}svg{width:100%;height:auto;font-family:inherit;display:block}
table{border-collapse:collapse;font-size:13px;width:100%}th{text-align:right;color:#777;font-weight:500;padding:3px 8px}
td{text-align:right;padding:3px 8px;border-top:1px solid #eee;font-variant-numeric:tabular-nums}
td:first-child,th:first-child,td.left,th.left{text-align:left}
.scroll{max-height:340px;overflow:auto}
.key{font-size:12.5px;color:#555;display:flex;flex-wrap:wrap;gap:4px 16px;margin:2px 0 8px}
.key i{display:inline-block;width:12px;height:12px;border-radius:2px;margin-right:5px;vertical-align:-1px}
pre{font-size:12px;overflow:auto;background:#f8f8f8;padding:8px}footer{color:#888;font-size:12px;margin:10px 4px}
"""


def html_page(title: str, body: str, footer: str) -> str:
    """Return a page that needs no other file: `body` is HTML, the other two are texts."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body><main>'
        f"{body}<footer>{escape(footer)}</footer></main></body></html>\n"
    )


def section(title: str, body: str) -> str:
    """Return a section: `title` is a text, `body` HTML."""
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def counted(number: int, noun: str) -> str:
    """Return `1 rank` or `2 ranks`."""
    return f"{number} {noun}{'s' * (number != 1)}"
