# SPDX-License-Identifier: Apache-2.0
"""DNS messages written by hand, for what no library would send."""
import struct


def query_hex(name, kind=1):
    """A query for @name: a list of labels, or a text whose labels are taken as they are."""
    labels = name if isinstance(name, list) else name.split(".")
    wire = b"".join(bytes([len(label)]) + label.encode("latin-1") for label in labels)
    return (struct.pack("!HHHHHH", 0x4242, 0x0100, 1, 0, 0, 0) + wire + b"\0"
            + struct.pack("!HH", kind, 1)).hex()
