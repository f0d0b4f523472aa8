"""The shape of an emulated cluster: one rail and one switch for each local GPU index."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Shape:
    nodes: int = 4
    gpus: int = 4          # of a node; also the number of rails
    ports: int = 2         # of a GPU
    dark_ms: float = 25
    technology: str = "piezo"
    settle: str = ""       # "power" or "time"; empty: the controller's default
    domain: int = 0        # hosts of an NVLink domain; 0: NVLink ends at the host
    known_by: tuple[str, ...] = ()  # "pci", "uuid": what the fabric file says of GPUs, as the stand-ins have them

    @property
    def switch_size(self) -> int:
        return max(2, self.nodes * self.ports)

    def switch_port(self, node: int, port: int) -> int:
        """GPU `g` of `node` is on the switch of rail `g`."""
        return node * self.ports + port + 1


def standin_uuid(node: int, gpu: int) -> str:
    """Of an emulated GPU (tools/emulation/engine/node_gpus.cpp)."""
    return f"GPU-7374616e-6469-6e00-{node >> 16:04x}-{node & 0xffff:04x}{gpu:08x}"


def fabric_toml(shape: Shape, scpi: list[str]) -> str:
    """scpi[r]: address of the switch of rail r."""
    text = ["version = 1", 'name = "emulated"']
    for r in range(shape.gpus):
        text += ["", "[[switch]]", f'name = "ocs-r{r}"', 'driver = "polatis-scpi"', f'address = "{scpi[r]}"',
                 f"size = {shape.switch_size}", f'technology = "{shape.technology}"', f"dark_ms = {shape.dark_ms:g}"]
        if shape.settle:
            text.append(f'settle = "{shape.settle}"')
        text += ["", "[[rail]]", f'name = "r{r}"', f'switches = ["ocs-r{r}"]']
    for n in range(shape.nodes):
        text += ["", "[[node]]", f'name = "n{n}"']
        if shape.domain:
            text.append(f'domain = "d{n // shape.domain}"')
        for g in range(shape.gpus):
            cables = ", ".join(f'"ocs-r{g}:{shape.switch_port(n, p)}"' for p in range(shape.ports))
            text += ["[[node.gpu]]", f'rail = "r{g}"', f"ports = [{cables}]"]
            if "pci" in shape.known_by:
                text.append(f'pci = "0000:{0x10 + g:02x}:00.0"')
            if "uuid" in shape.known_by:
                text.append(f'uuid = "{standin_uuid(n, g)}"')
    return "\n".join(text) + "\n"


def port_list(shape: Shape, data: list[str]) -> str:
    """For the stand-in transport: where each NIC port's fibre ends. data[r]: data plane of rail r."""
    return "".join(f"{n} {g} {p} {data[g]} {shape.switch_port(n, p)}\n"
                   for n in range(shape.nodes) for g in range(shape.gpus) for p in range(shape.ports))
