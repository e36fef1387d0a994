"""Files in the form of systemd's units."""


def unit_sections(text: str) -> dict[str, dict[str, list[str]]]:
    """Each section's keys with their values, in their order."""
    sections: dict[str, dict[str, list[str]]] = {}
    for line in text.splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            section.setdefault(key, []).append(value)
    return sections
