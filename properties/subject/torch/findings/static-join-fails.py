"""Join with static_graph: rank 0 has no input. With unused detection, rank 0 has two of the four inputs. Both end
in a timeout or an abort; two inputs without detection succeed (P11, S2)."""

from ranks import model_of, run, verdict
from torch.distributed.algorithms.join import Join


def ends(inputs_of_rank_0, detection):
    def body(rank):
        model = model_of(static_graph=True, find_unused_parameters=detection)

        def train():
            with Join([model]):
                for _ in range(inputs_of_rank_0 + 2 * rank.number):
                    model("p", 1.0).backward()

        rank.attempt("join", train)

    return [one["join"] or one["end"] for one in run(body)]


none, both, control = ends(0, False), ends(2, True), ends(2, False)
verdict(
    shown="ok" not in none and "ok" not in both and control == ["ok", "ok"],
    right=none == both == control == ["ok", "ok"],
)
