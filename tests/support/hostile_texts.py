"""Texts that run code in pages that build markup from them. Each would call `pwned()`."""

MARKUP = (
    "<script>pwned()</script>",
    "<img src=x onerror=pwned()>",
    "</textarea><svg onload=pwned()>",
    "\"'><iframe srcdoc='<script>parent.pwned()</script>'>",
    "<a href=javascript:pwned()>x</a>",
    "{{constructor.constructor('pwned()')()}}",
    "${pwned()}",
    "<style>@import 'javascript:pwned()'</style>",
    "\u202e<b onmouseover=pwned()>\u0000"[:-1],
    "--><math><mtext></form><form><mglyph><style></math><img src onerror=pwned()>",
)
ADDRESSES = (
    "javascript:pwned()",
    "JaVaScRiPt:pwned()",
    " javascript:pwned()",
    "java\tscript:pwned()",
    "data:text/html,<script>pwned()</script>",
    "vbscript:pwned()",
    "file:///etc/passwd",
    "//evil.example/x",
    "https://",
)
