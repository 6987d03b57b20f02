"""What no run has seen yet is kept apart from what the tool was built on."""

import tried.ports
import unseen.ports
from corpus import all_ports


def test_packages_that_no_run_has_seen_are_of_no_other_set():
    packages = {port.package for port in unseen.ports.PORTS}

    assert len(packages) >= 10
    assert not packages & {port.package for port in (*all_ports(), *tried.ports.PORTS)}


def test_ports_are_named_once():
    names = [port.name for port in (*all_ports(), *tried.ports.PORTS, *unseen.ports.PORTS)]

    assert len(names) == len(set(names))
