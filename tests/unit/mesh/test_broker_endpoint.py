"""Addresses of brokers in the settings."""

import pytest

from appliance.kernel.config import BadSettings, load
from appliance.settings import Settings


@pytest.mark.parametrize("url", ["http://:80", "http://h:port", "http://h:70000", "https://h:0/p"])
@pytest.mark.parametrize("section", ["inbox", "outbox"])
def test_address_without_host_or_valid_port_is_refused_with_its_setting(section, url):
    brokers = f'[{{"mesh": "lab", "url": "{url}"}}]'
    with pytest.raises(BadSettings, match=rf"`url` needs a host.*{section}\.brokers"):
        load(Settings, None, {f"AGENTLIP_{section.upper()}__BROKERS": brokers})
