"""A served appliance for each file of tests, and a stream for each test."""

from tests.sdk.conftest import hub as hub
from tests.sdk.conftest import stream as stream
