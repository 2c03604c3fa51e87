# Copyright The Muster Authors.
# SPDX-License-Identifier: Apache-2.0

"""What the inspection ramdisk says about test host number i. The same i always gives the same MACs, serials and addresses."""

import os

NICS = int(os.environ.get("HOST_NICS", "2"))
DISKS = int(os.environ.get("HOST_DISKS", "2"))
LIMIT = 1 << 24
RACK = 40  # hosts of a rack; each rack has a switch


def mac(i, nic=0):
    """MAC of NIC number nic of host i; unique for 16 million hosts with 256 NICs each."""
    return "52:54:%02x:%02x:%02x:%02x" % (nic, i >> 16 & 255, i >> 8 & 255, i & 255)


def number(address):
    """The host that the first-NIC address belongs to, or None for a MAC that is not from here."""
    part = address.lower().split(":")
    if part[:3] != ["52", "54", "00"] or len(part) != 6:
        return None
    return int("".join(part[3:]), 16)


def switch(i):
    """Chassis and name of the switch of host i, and the port of the first NIC."""
    rack, port = divmod(i - 1, RACK)
    return ["02:00:5e:00:%02x:%02x" % (rack >> 8 & 255, rack & 255), "rack%04d-leaf" % (rack + 1), "Ethernet1/%d" % (port + 1)]


def lldp(i):
    """What that switch sends, as types and hexadecimal values: chassis (a MAC), port (a name), time to live, system name, untagged VLAN 101."""
    chassis, name, port = switch(i)
    return [[1, "04" + chassis.replace(":", "")], [2, "05" + port.encode().hex()], [3, "0078"], [5, name.encode().hex()],
            [127, "0080c2010065"]]


def inventory(i):
    low = (i >> 16 & 255, i >> 8 & 255, i & 255)
    return {
        "hostname": "node-%05d" % i,
        "system_vendor": {
            "manufacturer": "Example Corp",
            "product_name": "Server 1U",
            "serial_number": "SN%08d" % i,
            "firmware": {"vendor": "Example Corp", "version": "1.0.0", "build_date": "01/01/2026"},
        },
        "cpu": {"model_name": "Example CPU", "frequency": "2000", "count": 16, "architecture": "x86_64",
                "flags": ["aes", "pdpe1gb", "pse", "sse4_2", "vmx"]},
        "memory": {"total": 64 << 30, "physical_mb": 64 << 10},
        "boot": {"current_boot_mode": "uefi", "pxe_interface": mac(i)},
        "bmc_address": "172.%d.%d.%d" % low,
        "bmc_v6address": None,
        "interfaces": [
            {"name": "eno%d" % (k + 1), "mac_address": mac(i, k), "has_carrier": k == 0,
             "ipv4_address": "10.%d.%d.%d" % low if k == 0 else None, "ipv6_address": None,
             "lldp": lldp(i) if k == 0 else None, "vendor": "0x15b3", "product": "0x1017", "client_id": None, "biosdevname": None,
             "speed_mbps": 25000, "pci_address": "0000:3b:00.%d" % k, "driver": "mlx5_core"}
            for k in range(NICS)
        ],
        "disks": [
            {"name": "/dev/nvme%dn1" % d, "model": "Example NVMe", "size": 960 * 10**9, "rotational": False,
             "wwn": "eui.%016x" % (i << 8 | d), "serial": "D%08d-%d" % (i, d), "vendor": None,
             "wwn_with_extension": None, "wwn_vendor_extension": None, "hctl": None,
             "by_path": "/dev/disk/by-path/pci-0000:%02x:00.0-nvme-1" % (0x31 + d),
             "logical_sectors": 512, "physical_sectors": 4096}
            for d in range(DISKS)
        ],
    }


def ramdisk_data(i):
    inv = inventory(i)
    return {
        "inventory": inv,
        "boot_interface": "01-" + mac(i).replace(":", "-"),
        "root_disk": inv["disks"][0] if inv["disks"] else None,
        "configuration": {"collectors": ["default"], "managers": []},
        "error": None,
    }
