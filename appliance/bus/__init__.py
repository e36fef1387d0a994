"""The worker bus in the appliance, over HTTP and for tools, and on the command line, which needs no
server. The file and its rules are in `busfile`."""
