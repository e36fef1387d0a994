"""In a checkout, what a program imports once Agentlip is installed: `agentlip.sdk`.

The installed package is built from `appliance/` by setup.py and does not contain this folder.
"""

from appliance import __version__ as __version__
