# SPDX-License-Identifier: Apache-2.0
"""Where Ray starts the actors: a placement group, and an actor for each rank in it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from horovod.ray.settings import MiniSettings
from horovod.ray.worker import BaseHorovodWorker

if TYPE_CHECKING:
    from ray.util.placement_group import PlacementGroup


def create_placement_group(
    resources_per_bundle: dict[str, float], num_bundles: int, pg_timeout: float, pg_strategy: str
) -> tuple[PlacementGroup, list[dict[str, float]]]:
    """
    Return a placement group that Ray has reserved, and its bundles.

    Raises TimeoutError if Ray cannot reserve it in `pg_timeout` seconds; the text has both sides' numbers.
    """
    import ray

    bundles = [dict(resources_per_bundle) for _ in range(num_bundles)]
    group = ray.util.placement_group(bundles, strategy=pg_strategy)
    if not group.wait(pg_timeout):
        ray.util.remove_placement_group(group)
        wanted, there, free = map(_show, (resources_per_bundle, ray.cluster_resources(), ray.available_resources()))
        raise TimeoutError(
            f"Ray did not reserve {num_bundles} times {wanted} ({pg_strategy}) in {pg_timeout:g} s; "
            f"the cluster has {there}, of which {free} are free: ask for fewer or smaller workers, add nodes, or raise "
            "placement_group_timeout_s if nodes still start"
        )
    return group, bundles


def _show(resources: dict[str, float]) -> str:
    return ", ".join(
        f"{resources.get(name, 0):g} {name}" for name in ("CPU", "GPU") if name != "GPU" or name in resources
    )


@dataclasses.dataclass(frozen=True)
class Share:
    """What one rank gets."""

    cpus: float
    gpus: float

    def times(self, count: int) -> dict[str, float]:
        """Return the resources of `count` ranks."""
        return {"CPU": self.cpus * count, **({"GPU": self.gpus * count} if self.gpus else {})}


class _Strategy:
    """Starts actors in a placement group."""

    def __init__(self, settings: MiniSettings, share: Share) -> None:
        self.settings, self._share = settings, share
        self.placement_group: PlacementGroup | None = None
        self._own = True

    @property
    def num_workers(self) -> int:
        """The number of ranks."""
        raise NotImplementedError

    def create_workers(self) -> list[Any]:
        """Start the actors. They may still be on their way when this returns."""
        raise NotImplementedError

    def shutdown(self) -> None:
        """Give the placement group back, if `create_workers` has made it."""
        import ray

        if self.placement_group is not None and self._own:
            ray.util.remove_placement_group(self.placement_group)
        self.placement_group = None

    def _start(self, bundles: list[int]) -> list[Any]:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        actor = ray.remote(BaseHorovodWorker)
        return [
            actor.options(
                num_cpus=self._share.cpus,
                num_gpus=self._share.gpus,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self.placement_group, bundle),
            ).remote(rank, len(bundles))
            for rank, bundle in enumerate(bundles)
        ]


class ColocatedStrategy(_Strategy):
    """As many ranks on each of some nodes: one bundle per node."""

    def __init__(self, settings: MiniSettings, num_hosts: int, num_workers_per_host: int, share: Share) -> None:
        super().__init__(settings, share)
        self._hosts, self._per_host = num_hosts, num_workers_per_host

    @property
    def num_workers(self) -> int:
        """The number of ranks."""
        return self._hosts * self._per_host

    def create_workers(self) -> list[Any]:
        """Start the actors, node by node."""
        self.placement_group, _ = create_placement_group(
            self._share.times(self._per_host), self._hosts, self.settings.placement_group_timeout_s, "STRICT_SPREAD"
        )
        return self._start([host for host in range(self._hosts) for _ in range(self._per_host)])


class PGStrategy(_Strategy):
    """
    Ranks wherever Ray has room: one bundle per rank, on few nodes.

    `use_current` takes the placement group in which the caller runs, if it runs in one, as a trial of Ray Tune does.
    """

    def __init__(self, settings: MiniSettings, num_workers: int, share: Share, use_current: bool = True) -> None:
        super().__init__(settings, share)
        self._workers, self._use_current = num_workers, use_current

    @property
    def num_workers(self) -> int:
        """The number of ranks."""
        return self._workers

    def create_workers(self) -> list[Any]:
        """Start the actors."""
        import ray

        current = ray.util.get_current_placement_group() if self._use_current else None
        if current is not None:
            self.placement_group, self._own = current, False
            return self._start([-1] * self._workers)  # in any bundle with room
        self._own = True
        self.placement_group, _ = create_placement_group(
            self._share.times(1), self._workers, self.settings.placement_group_timeout_s, "PACK"
        )
        return self._start(list(range(self._workers)))
