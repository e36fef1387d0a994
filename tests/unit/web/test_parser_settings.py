"""The settings for gunicorn's parser, written here because gunicorn's own module takes 1 MB."""

import re
from pathlib import Path

import gunicorn.http
from gunicorn.config import Config

from appliance.web.parser import parser_settings

OURS = {"forwarded_allow_ips", "secure_scheme_headers", "forwarder_headers", "http_parser"}


def test_setting_that_gunicorn_reads_has_its_default_or_ours():
    sources = Path(gunicorn.http.__file__).parent.glob("*.py")
    read = set(re.findall(r"cfg\.(\w+)", "".join(file.read_text("utf-8") for file in sources)))
    own = vars(parser_settings())
    assert read <= own.keys()
    defaults = {name: setting.get() for name, setting in Config().settings.items()}
    compared = (own.keys() & defaults.keys()) - OURS
    assert {n: own[n] for n in compared} == {n: defaults[n] for n in compared}
