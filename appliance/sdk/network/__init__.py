"""What an agent of the network imports, without an appliance. Needs the extra `agentlip[network]`.

relay_client    signed requests to a relay
folder          the files of an agent: name, relay, key
"""
