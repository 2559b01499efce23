"""All cells of a cluster: which gang has which, and what a gang can get now.

Gangs come with `find`, which changes nothing but the downgrades that it reports, and `commit`,
`reserve`, `start` and `release`. A guaranteed gang is placed on virtual cells of its virtual
cluster, which are then mapped to machines; whatever other virtual clusters do, it gets what it
could get in a private cluster made of its cells. Opportunistic gangs use what is left, and are
evicted as whole gangs.

Source: HiveD, OSDI 2020; exact rules of its implementation microsoft/hivedscheduler (66f26ac).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dlsched.core.cluster.cells import CellPlan, Grant
from dlsched.core.errors import BadInput, not_known
from dlsched.policies.placement.hived.cells import (
    FREE,
    GUARANTEED,
    HIGHEST,
    OPPORTUNISTIC,
    Physical,
    Virtual,
    physical_cells,
    virtual_cell,
)
from dlsched.policies.placement.hived.gangs import (
    Gang,
    HeldVirtual,
    Placed,
    Pods,
    Request,
    VirtualPods,
    Waits,
)
from dlsched.policies.placement.hived.ledger import Ledger, is_free
from dlsched.policies.placement.hived.mapping import mapped
from dlsched.policies.placement.hived.view import View

Owned = Mapping[str, tuple[Sequence[Grant], Sequence[str]]]


class ClusterCells:
    """All cells of a cluster.

    Attributes:
        plan: the cells of the machines.
        owned: by virtual cluster what it owns.
        tops: the top-level physical cells, by chain.
        ledgers: what is free, by chain.
        roots: granted cells by virtual cluster, in order; pinned ones come last.
        gangs: those that hold GPUs or wait for them, by name.
        bad: machines that are bad.
    """

    def __init__(self, plan: CellPlan, owned: Owned) -> None:
        """Begin with all machines healthy and nothing in use."""
        self.plan = plan
        self.owned = owned
        self.tops: dict[str, list[Physical]] = {name: [] for name in plan.chains}
        for top in physical_cells(plan):
            self.tops[top.chain.name].append(top)
        self.roots: dict[str, list[Virtual]] = {vc: self._roots_of(vc) for vc in owned}
        self.ledgers = {name: self._ledger(name) for name in plan.chains}
        self.gangs: dict[str, Gang] = {}
        self.bad: set[str] = set()
        self._chain_views = {
            name: View(tops, packs_across=False) for name, tops in self.tops.items()
        }
        self._vc_views = {key: View(roots, packs_across=True) for key, roots in self._grouped()}
        self.gpus_of: dict[str, dict[int, Physical]] = {}  # by machine and index
        pins: dict[str, Physical] = {}
        for top in (top for tops in self.tops.values() for top in tops):
            for cell in top.everything():
                if cell.level == 1:
                    self.gpus_of.setdefault(cell.node, {})[cell.index] = cell
                if cell.pin:
                    pins[cell.pin] = cell
        for roots in self.roots.values():
            for root in roots:
                if root.pin:
                    cell = pins[root.pin]
                    self.ledgers[cell.chain.name].allocate(cell, root.vc)
                    cell.bound, root.bound = root, cell

    def _roots_of(self, vc: str) -> list[Virtual]:
        grants, pinned = self.owned[vc]
        roots: list[Virtual] = []
        for grant in grants:
            chain = self.plan.chains.get(grant.chain)
            if chain is None or not chain.level_of(grant.cell):
                continue  # cells by topology, and no such machine is there yet
            for _ in range(grant.count):
                roots.append(
                    virtual_cell(chain, chain.level_of(grant.cell), f"{vc}/{len(roots)}", vc)
                )
        for pin in pinned:
            name, level = self.plan.pins[pin]
            roots.append(virtual_cell(self.plan.chains[name], level, f"{vc}/{len(roots)}", vc, pin))
        return roots

    def _ledger(self, name: str) -> Ledger:
        granted: dict[str, list[int]] = {}
        unpinned: dict[str, dict[int, list[Virtual]]] = {}
        chain = self.plan.chains[name]
        for vc, roots in self.roots.items():
            mine = [root for root in roots if root.chain is chain]
            if mine:
                granted[vc] = [0] * (chain.top + 1)
                unpinned[vc] = {}
            for root in mine:
                granted[vc][root.level] += 1
                if not root.pin:
                    unpinned[vc].setdefault(root.level, []).append(root)
        return Ledger(chain, self.tops[name], granted, unpinned)

    def _grouped(self) -> Iterable[tuple[tuple[str, str, str], list[Virtual]]]:
        """Granted cells that are searched together: by virtual cluster, chain and pin."""
        found: dict[tuple[str, str, str], list[Virtual]] = {}
        for vc, roots in self.roots.items():
            for root in roots:
                found.setdefault((vc, root.chain.name, root.pin), []).append(root)
        return found.items()

    # -- questions ---------------------------------------------------------------------------------

    @property
    def views(self) -> list[View[Physical] | View[Virtual]]:
        """All lists of machines that are searched, in a fixed order."""
        return [*self._chain_views.values(), *self._vc_views.values()]

    @property
    def chains_in_order(self) -> list[str]:
        """Names of chains in the order in which they are searched: descending."""
        return sorted(self.plan.chains, reverse=True)

    def check(self, request: Request) -> None:
        """Refuse what can never be placed.

        Raises:
            BadInput: one line that says why.
        """
        if request.vc not in self.owned and (request.is_guaranteed or request.vc):
            known = ", ".join(vc for vc in self.owned if vc)
            if not request.vc:
                raise BadInput(
                    "it names no virtual cluster, which only opportunistic jobs (a priority below "
                    f"0) may do; those with cells: {known}"
                )
            raise BadInput(f"vc {request.vc} owns no cells; those that do: {known}")
        if not OPPORTUNISTIC <= request.priority <= HIGHEST:
            raise BadInput(
                f"priority must be {OPPORTUNISTIC} (opportunistic) or from {GUARANTEED} to "
                f"{HIGHEST} (guaranteed), not {request.priority}"
            )
        if request.pin:
            mine = self.owned[request.vc][1] if request.vc in self.owned else ()
            if request.pin not in mine:
                raise not_known(f"vc {request.vc}: pinned cell", request.pin, mine)
            if not request.is_guaranteed:
                raise BadInput(f"an opportunistic job cannot use the pinned cell {request.pin!r}")
        elif request.gpu_type:
            types = {chain.gpu_type for chain in self.plan.chains.values()}
            if request.gpu_type not in types:
                raise not_known("GPU type", request.gpu_type, sorted(types))
            if request.is_guaranteed and not self._chains_for(request):
                raise BadInput(f"vc {request.vc} has no cells of GPU type {request.gpu_type}")

    def _chains_for(self, request: Request) -> list[str]:
        if request.pin:
            return [self.plan.pins[request.pin][0]]
        return [
            name
            for name in self.chains_in_order
            if request.gpu_type in ("", self.plan.chains[name].gpu_type)
            and (not request.is_guaranteed or (request.vc, name, "") in self._vc_views)
        ]

    def root_levels(self, request: Request, chain: str) -> list[int]:
        """Levels of the granted cells that a gang may use in a chain, ascending."""
        roots = self.roots.get(request.vc, ())
        return sorted({r.level for r in roots if r.chain.name == chain and r.pin == request.pin})

    def has_cells_on(self, request: Request) -> bool:
        """Whether a chain in which a gang's virtual cluster has cells has machines it may use."""
        return any(
            request.allowed is None or not request.allowed.isdisjoint(top.nodes)
            for name in self._chains_for(request)
            for top in self.tops[name]
        )

    # -- placing -----------------------------------------------------------------------------------

    def find(self, request: Request) -> Placed | Waits:
        """Where a gang that holds nothing could start now.

        Gangs that may be made opportunistic where they stand have been, if it has a place.
        """
        answer: Placed | Waits = Waits(reason=f"vc {request.vc} has no cells for it")
        for name in self._chains_for(request):
            if request.is_guaranteed:
                found = self._find_guaranteed(request, name)
            else:
                found = self._find_opportunistic(request, name)
            if isinstance(found, Placed):
                return found
            answer = found
        return answer

    def _find_opportunistic(self, request: Request, chain: str) -> Placed | Waits:
        pods = self._chain_views[chain].place(request, OPPORTUNISTIC)
        if isinstance(pods, Waits):
            return Waits(reason=f"{pods.reason} outside guaranteed jobs")
        return self._placed(pods, None)

    def _find_guaranteed(self, request: Request, chain: str) -> Placed | Waits:
        view = self._vc_views[request.vc, chain, request.pin]
        virtual = view.place(request, request.priority)
        if isinstance(virtual, Waits):
            return Waits(reason=f"{virtual.reason} in vc {request.vc}")
        downgraded = self._downgrade_on(virtual, request.name)
        ledger = self.ledgers[chain]
        pods = mapped(virtual, ledger.chain, ledger.free, ledger.all_vc_free, request.allowed)
        if pods is None:
            for gang, had in downgraded:
                self._upgrade(gang, had)
            return Waits(reason="its cells would need a node that is bad or that it may not use")
        return self._placed(pods, virtual, (*downgraded,))

    def _placed(
        self,
        pods: Pods,
        virtual: VirtualPods | None,
        downgraded: tuple[tuple[Gang, HeldVirtual], ...] = (),
    ) -> Placed:
        victims: dict[str, Gang] = {}
        rivals: dict[str, Gang] = {}
        for gpu in (gpu for pod in pods for gpu in pod):
            if gpu.user is not None:
                victims[gpu.user.name] = gpu.user
            if gpu.claimant is not None:
                rivals[gpu.claimant.name] = gpu.claimant
        return Placed(
            pods=pods,
            virtual=virtual,
            victims=(*victims.values(),),
            rivals=(*rivals.values(),),
            downgraded=downgraded,
        )

    def undo(self, placed: Placed) -> None:
        """A placement that was found is not carried out."""
        for gang, had in placed.downgraded:
            self._upgrade(gang, had)

    # -- lazy preemption ---------------------------------------------------------------------------

    def _downgrade_on(self, pods: VirtualPods, by: str) -> list[tuple[Gang, HeldVirtual]]:
        """Make gangs opportunistic that stand on virtual GPUs, where they allow it."""
        found: list[tuple[Gang, HeldVirtual]] = []
        for virtual in (gpu for pod in pods for gpu in pod):
            gpu = virtual.bound
            if gpu is None or gpu.user is None or gpu.claimant is not None:
                continue
            gang = gpu.user
            if gang.request.lazy and gang.virtual is not None:
                found.append((gang, gang.virtual))
                self.downgrade(gang, by)
        return found

    def downgrade(self, gang: Gang, by: str) -> None:
        """A gang loses its virtual cells and keeps its GPUs, as an opportunistic one."""
        for gpu, virtual in list(gang.pairs()):
            if virtual is not None and gpu.claimant is None:
                self._release_gpu(gpu)
                self._allocate_gpu(gpu, None, OPPORTUNISTIC, gang.request.vc)
        gang.virtual = None
        gang.downgraded_by = by

    def _upgrade(self, gang: Gang, virtual: HeldVirtual) -> None:
        """Undo a downgrade."""
        gang.virtual = virtual
        for gpu, cell in gang.pairs():
            self._release_gpu(gpu)
            self._allocate_gpu(gpu, cell, gang.request.priority, gang.request.vc)
        gang.downgraded_by = ""

    # -- gangs come and go -------------------------------------------------------------------------

    def commit(self, request: Request, placed: Placed) -> Gang:
        """A gang without victims starts; its virtual cells are derived from its GPUs anew."""
        if placed.virtual is None:
            return self.adopt(request, placed.pods, None)
        levels = [[gpu.root.level for gpu in pod] for pod in placed.virtual]
        return self.adopt(request, placed.pods, levels)

    def adopt(
        self,
        request: Request,
        pods: Pods,
        root_levels: Sequence[Sequence[int]] | None,
        *,
        may_downgrade: bool = True,
    ) -> Gang:
        """Enter a gang that runs on these GPUs; it is never ended, at worst made opportunistic.

        Args:
            request: what it asked for.
            pods: its GPUs, which no other gang has.
            root_levels: for each GPU the level of the granted cell that it is part of; None for an
                opportunistic gang.
            may_downgrade: whether it takes virtual cells from gangs of lower priority.
        """
        gang = Gang(request=request, pods=pods)
        virtual: list[list[Virtual | None]] = []
        fits = root_levels is not None
        for k, pod in enumerate(pods):
            virtual.append([])
            for j, gpu in enumerate(pod):
                cell = None
                if gpu.claimant is not None:  # another gang waits for it, and has its cell
                    gpu.user = gang
                    virtual[k].append(None)
                    continue
                if fits and root_levels is not None:
                    cell = self._virtual_of(
                        gpu, request, root_levels[k][j], may_downgrade=may_downgrade
                    )
                    fits = cell is not None
                if cell is not None and cell.bound is not None and cell.bound.user is not None:
                    self.downgrade(cell.bound.user, request.name)
                fits &= self._allocate_gpu(gpu, cell, request.priority, request.vc)
                gpu.user = gang
                virtual[k].append(cell)
        if root_levels is not None:
            gang.virtual = virtual
            if not fits:
                self.downgrade(gang, gang.name)
        self.gangs[request.name] = gang
        return gang

    def reserve(self, request: Request, placed: Placed) -> Gang:
        """A gang waits for its victims; their GPUs are its own from now on, at its priority.

        Reservations that it overlaps have been cancelled.
        """
        assert placed.virtual is not None
        gang = Gang(request=request, pods=placed.pods, state="Preempting")
        virtual: list[list[Virtual | None]] = []
        for pod, planned in zip(placed.pods, placed.virtual, strict=True):
            virtual.append([])
            for gpu, plan in zip(pod, planned, strict=True):
                if gpu.user is not None:
                    self._release_gpu(gpu)
                    gpu.user.state = "BeingPreempted"
                cell: Virtual | None = plan
                if plan.bound not in (None, gpu):  # to a bad cell, by the GPUs before it
                    cell = self._virtual_of(gpu, request, plan.root.level, may_downgrade=False)
                self._allocate_gpu(gpu, cell, request.priority, request.vc)
                gpu.claimant = gang
                virtual[-1].append(cell)
        gang.virtual = virtual
        self.gangs[request.name] = gang
        return gang

    def cancel(self, gang: Gang) -> None:
        """A gang that waits for its victims gives up; those that are left have their GPUs again."""
        for gpu in gang.gpus:
            self._release_gpu(gpu)
            gpu.claimant = None
            if gpu.user is not None:
                cell = next(cell for at, cell in gpu.user.pairs() if at is gpu)
                self._allocate_gpu(gpu, cell, gpu.user.request.priority, gpu.user.request.vc)
        del self.gangs[gang.name]

    def victims_of(self, gang: Gang) -> list[Gang]:
        """The gangs whose GPUs a waiting gang still waits for."""
        return list({g.user.name: g.user for g in gang.gpus if g.user is not None}.values())

    def start(self, gang: Gang) -> None:
        """All victims have left: the gang starts."""
        for gpu in gang.gpus:
            gpu.claimant, gpu.user = None, gang
        gang.state = "Allocated"

    def release(self, gang: Gang) -> None:
        """A gang has ended; what others have reserved of its GPUs stays theirs."""
        for gpu in gang.gpus:
            gpu.user = None
            if gpu.claimant is None:
                self._release_gpu(gpu)
        del self.gangs[gang.name]

    # -- machines ----------------------------------------------------------------------------------

    def set_bad(self, node: str) -> None:
        """A machine is bad from now on; what runs there stays."""
        if node not in self.bad and node in self.gpus_of:
            self.bad.add(node)
            for gpu in self.gpus_of[node].values():
                self.ledgers[gpu.chain.name].set_bad(gpu)

    def set_healthy(self, node: str) -> None:
        """A machine is healthy again."""
        if node in self.bad:
            self.bad.discard(node)
            for gpu in self.gpus_of[node].values():
                self.ledgers[gpu.chain.name].set_healthy(gpu)

    # -- single GPUs -------------------------------------------------------------------------------

    def _allocate_gpu(self, gpu: Physical, cell: Virtual | None, priority: int, vc: str) -> bool:
        """A GPU is used for a virtual one (None: opportunistically); returns whether it is safe."""
        if cell is None:
            gpu.set_priority(OPPORTUNISTIC)
            gpu.count(OPPORTUNISTIC, +1)
            return True
        for each in (cell, gpu):
            each.set_priority(priority)
            each.count(priority, +1)
        is_new = cell.root.bound is None
        if gpu.bound is None:
            _bind(gpu, cell)
        if is_new and cell.root.bound is not None:
            return self.ledgers[gpu.chain.name].allocate(cell.root.bound, vc)
        return True

    def _release_gpu(self, gpu: Physical) -> None:
        """A GPU is used no more, or no longer as it was."""
        cell = gpu.bound
        # a bad one may be bound without being used, or while it is used opportunistically
        if cell is not None and cell.priority >= GUARANTEED:
            cell.count(cell.priority, -1)
            cell.set_priority(FREE)
            root, granted = cell.root, cell.root.bound
            assert granted is not None
            if gpu.healthy:  # a bad one stays bound, so that it is seen
                _unbind(gpu)
            ledger = self.ledgers[gpu.chain.name]
            doomed = ledger.is_doomed(granted, root.vc)
            if not granted.pin and root.priority < GUARANTEED and not doomed:
                ledger.release(granted, root.vc)
        gpu.count(gpu.priority, -1)
        gpu.set_priority(FREE)

    def _virtual_of(
        self, gpu: Physical, request: Request, root_level: int, *, may_downgrade: bool
    ) -> Virtual | None:
        """The virtual GPU that a GPU stands for, from the physical side."""
        candidates = [
            root
            for root in self.roots.get(request.vc, ())
            if root.chain is gpu.chain and root.pin == request.pin and root.level == root_level
        ]
        cell = _derived(gpu, candidates, root_level, request.priority if may_downgrade else FREE)
        return cell if cell is not None and cell.root in candidates else None


def fits_again(gang: Gang) -> bool:
    """Are all GPUs that a gang had, and the virtual cells that they were, in no use?"""
    for gpu, virtual in gang.pairs():
        if gpu.user is not None or gpu.claimant is not None or not gpu.healthy:
            return False
        if gang.virtual is not None and (virtual is None or not _is_idle(gpu, virtual)):
            return False
    return True


def _is_idle(gpu: Physical, virtual: Virtual) -> bool:
    """Could a GPU be bound to a virtual one, as both are now?"""
    at: Physical | None = gpu
    cell: Virtual | None = virtual
    while at is not None and cell is not None:
        if at.bound is cell:
            return virtual.priority == FREE
        if at.bound is not None or cell.bound is not None:
            return False
        if cell.parent is None:
            return is_free(at)
        at, cell = at.parent, cell.parent
    return False


def _derived(
    cell: Physical, roots: Sequence[Virtual], root_level: int, priority: int
) -> Virtual | None:
    if cell.bound is not None:
        return cell.bound
    if cell.level == root_level:
        return _least(roots, priority)
    if cell.parent is None:
        return None
    above = _derived(cell.parent, roots, root_level, priority)
    return None if above is None else _least(above.children, priority)


def _least(cells: Iterable[Virtual], priority: int) -> Virtual | None:
    """The first free and unbound cell, else the one of lowest priority below a given one."""
    best: Virtual | None = None
    for cell in cells:
        if cell.priority == FREE:
            if cell.bound is None:
                return cell
        elif cell.priority < priority and (best is None or cell.priority < best.priority):
            best = cell
    return best


def _bind(gpu: Physical, cell: Virtual) -> None:
    at: Physical | None = gpu
    virtual: Virtual | None = cell
    while at is not None and virtual is not None and virtual.bound is None:
        at.bound, virtual.bound = virtual, at
        at, virtual = at.parent, virtual.parent


def _unbind(gpu: Physical) -> None:
    """Unbind a GPU, and above it what has no other bound part; a pinned cell stays bound."""
    virtual = gpu.bound
    while virtual is not None and virtual.bound is not None and not virtual.bound.pin:
        virtual.bound.bound = None
        virtual.bound = None
        if virtual.parent is None or any(c.bound is not None for c in virtual.parent.children):
            return
        virtual = virtual.parent
