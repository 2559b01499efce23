"""A network of Flax, saved by orbax, which the scheduler may stop, move and continue.

dlsched submit --gpus 1 -- python preemptible.py --epochs 4
"""

from __future__ import annotations

import argparse
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp

from dlsched.job import Job, attach
from dlsched.job.frameworks.own_folder import OwnFolder


class Net(nn.Module):
    """A curve."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return its value at each point."""
        hidden = nn.Dropout(0.1, deterministic=False)(nn.tanh(nn.Dense(32)(x)))
        return nn.Dense(1)(hidden)


def main(given: argparse.Namespace, job: Job) -> None:
    """Train."""
    net, optimizer, seed = Net(), optax.adam(0.01), jax.random.key(0)
    x = jnp.linspace(-3, 3, given.samples)[:, None]
    y = jnp.sin(2 * x)
    params = net.init({"params": seed, "dropout": seed}, x[:1])
    state = {"params": params, "optimizer": optimizer.init(params)}

    @jax.jit
    def train(state, chosen, key):
        def loss_of(params):
            return jnp.mean((net.apply(params, x[chosen], rngs={"dropout": key}) - y[chosen]) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(state["params"])
        updates, inner = optimizer.update(gradients, state["optimizer"])
        return {"params": optax.apply_updates(state["params"], updates), "optimizer": inner}, loss

    orbax = ocp.StandardCheckpointer()

    def write(folder: Path) -> None:
        orbax.save(folder.absolute() / "state", state)
        orbax.wait_until_finished()  # the job commits complete folders only

    saved = OwnFolder(job, "orbax", write)
    first = job.restore()
    if saved.path is not None:
        state = orbax.restore(saved.path.absolute() / "state", state)
    batches = given.samples // given.batch
    for step in range(first, given.epochs * batches):  # the order and the dropout follow from it
        epoch, number = divmod(step, batches)
        order = jax.random.permutation(jax.random.fold_in(seed, epoch), given.samples)
        chosen = order[number * given.batch : (number + 1) * given.batch]
        state, loss = train(state, chosen, jax.random.fold_in(seed, step))
        if not job.step(loss=loss):
            return
    leaves = jax.tree.leaves(state["params"])
    print("weights", *(float(jnp.sum(each)).hex() for each in leaves), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Learn a curve.")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=32)
    with attach() as job:
        main(parser.parse_args(), job)
