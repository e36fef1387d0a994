"""What an agent imports to read, post and follow a workspace; light, and without the server.

discovery   which workspace, which hub, which token
reader      stateless reads of the database, no hub needed
http        requests to the hub, retried safely
catalogue   names of channels and topics to ids, made on demand
listen      the event stream over a WebSocket, resumed after every break
importer    many messages from a file, each exactly once
"""
