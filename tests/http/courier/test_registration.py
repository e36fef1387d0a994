"""The registration data for a Hostess, kernel or Router."""

from tests.support.courier_http import enqueue, get


def test_advertise_returns_registration_data(client):
    enqueue(client, "a")
    advert = get(client, "/v1/advertise")
    hostess = advert["hostess"]
    assert advert["identity"].split(":")[1] == hostess["servername"] == "courier"
    assert advert["identity"].endswith(hostess["uuid"])
    assert advert["kernel"]["capabilities"]["accepts"] == ["envelope"]
    assert hostess["metadata"]["streams"] == 1
    assert advert["endpoint"]["metadata"]["stats"] == "/v1/stats"
