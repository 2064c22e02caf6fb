# ---- what one rank does ----

WORLD, PARAMETERS, TOLERANCES = CASE["world"], CASE["parameters"], CASE["tolerances"]
STEPS, EXPECTED = CASE["steps"], CASE["expected"]


def wrap(model):
    dist._DEFAULT_FIRST_BUCKET_BYTES = CASE["first_bucket_bytes"]
    ddp = DistributedDataParallel(model, **CASE["options"])
    if CASE["ends_by_hand"]:
        if not hasattr(ddp, "finalize_backward"):
            raise RuntimeError("this PyTorch has no DistributedDataParallel.finalize_backward()")
        ddp.require_manual_backward_finalization = True
    if CASE["hook"] is not None:
        ddp.register_comm_hook(None, getattr(default_hooks, CASE["hook"]))
    return ddp


class KeepsBuffers(torch.nn.Module):
    """The model, with buffers of ones that multiply its outputs: the graph keeps them."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        for number, sizes in enumerate(CASE["buffers"]):
            self.register_buffer("b%d" % number, torch.ones(sizes, dtype=torch.float64))

    def forward(self, *arguments):
        outputs = self.model(*arguments)
        for buffer in self.buffers():
            outputs = [(output * buffer).flatten()[0] for output in outputs]
        return outputs


def sync_gradients(ddp):
    """How a forward of DistributedDataParallel ends, in plain mode and outside of no_sync()."""
    ddp.require_forward_param_sync = True
    ddp.reducer.prepare_for_backward([])


def floats(numbers):
    """JSON has no infinity and no NaN; these are texts."""
    return [float(number) for number in numbers]


def tensor_of(constant):
    """The elements; of a sparse parameter's use the rows that are looked up, and their elements."""
    if isinstance(constant, dict):
        return torch.tensor(constant["rows"], dtype=torch.long), tensor_of(constant["elements"])
    return torch.tensor(floats(constant), dtype=torch.float64)


def run_forward(ddp, kind, forward, constants):
    arguments = (torch.zeros((), dtype=torch.float64, requires_grad=True), Call(forward, constants))
    if kind == "synced":
        return ddp(*arguments)
    with ddp.no_sync() if kind == "no_sync" else torch.no_grad():
        return ddp(*arguments)


def run_step(ddp, work, constants, held):
    """None, or the place of the call that failed and what it said. held: outputs of the last step
    that live on."""
    place = -1
    kept = []
    calls_left = sum("backward" in call[0] for call in work["calls"])
    try:
        for name, place, *rest in work["calls"]:
            if name == "zero_grad" and rest[0] != "not":
                ddp.zero_grad(set_to_none=rest[0] == "to none")
            if name == "forward":
                number, kind = rest
                outputs = run_forward(ddp, kind, work["forwards"][number], constants)
                if kind != "no_grad" and not work["forwards"][number]["discard"]:
                    kept += outputs
                del outputs
            if name == "sync_gradients":
                sync_gradients(ddp)
            if name == "drop":
                kept = [None if i in rest[0] else output for i, output in enumerate(kept)]
            if "backward" in name:
                calls_left -= 1
                chosen = [(held if name == "held_backward" else kept)[root] for root in rest[0]]
                if calls_left == 0 and not work["keep_outputs"]:
                    kept = []  # the rank lets go of outputs that it did not use
                if chosen:
                    ones = [torch.ones_like(output) for output in chosen]
                    torch.autograd.backward(chosen, ones, retain_graph=calls_left > 0)
                is_end = name == "backward" and calls_left == 0 and work["kind"] == "synced"
                if is_end and CASE["ends_by_hand"]:
                    ddp.finalize_backward()
        if work["calls"]:  # the rank does not skip the step
            held[:] = kept if work["hold_outputs"] else []
    except Exception as error:
        return place, (str(error).strip() or repr(error)).splitlines()[0]
    return None


def numbers_of(gradient):
    if not gradient.is_sparse:
        return gradient.double().flatten().tolist()
    rows = gradient.coalesce()  # its elements, then 1 for each row that is there
    dense = torch.zeros(gradient.shape, dtype=torch.float64)
    dense[rows.indices()[0]] = rows.values().double()
    is_there = torch.zeros(gradient.shape[0], dtype=torch.float64)
    is_there[rows.indices()[0]] = 1
    return dense.flatten().tolist() + is_there.tolist()


def gradients_of(model):
    out = {}
    for record in PARAMETERS:
        gradient = getattr(model, record["name"]).weight.grad
        out[record["name"]] = None if gradient is None else numbers_of(gradient)
    return out


def train(rank, folder, reports, all_are_done):
    """Sends, for each step, the failure (or None) and the gradients; a text if it cannot start."""
    torch.set_num_threads(1)
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        dist.init_process_group(
            "gloo", init_method="file://" + os.path.join(folder, "store"), rank=rank,
            world_size=WORLD, timeout=datetime.timedelta(seconds=CALL_SECONDS))
        model = Model(PARAMETERS)
        ddp = wrap(KeepsBuffers(model) if CASE["buffers"] else model)
    except Exception as error:
        reports.send("cannot start: " + str(error))
        return
    seen = []
    held = []
    for number, step in enumerate(STEPS):
        constants = {name: tensor_of(values) for name, values in step["constants"][rank].items()}
        work = next(each["work"] for each in step["works"] if rank in each["ranks"])
        failure = run_step(ddp, work, constants, held)
        seen.append((failure, gradients_of(model)))
        if failure is not None or EXPECTED[number]["ends"]:
            break
    reports.send(seen)
    if seen and seen[-1][0] is not None:
        time.sleep(1)  # peers that are still in an earlier collective can end it
    else:
        all_are_done.wait(RUN_SECONDS)
    os._exit(0)  # the collectives of a failed step may never end


# ---- the verdict ----


def of_rank(value, rank):
    return value["every rank"] if "every rank" in value else value["by rank"][rank]


def text_of_failure(failure):
    place, text = failure
    return "%s fails: %s" % ("forward" if place < 0 else "backward %d" % place, text)


def same(got, expected, tolerance):
    if math.isnan(got) or math.isnan(expected):
        return math.isnan(got) and math.isnan(expected)
    if tolerance is None or math.isinf(got) or math.isinf(expected):
        return got == expected and math.copysign(1, got) == math.copysign(1, expected)
    return abs(got - expected) <= tolerance


def compare_call(failure, expected):
    """None if the rank's calls went as expected."""
    if expected == "success, or fails":
        return None
    if failure is None and expected == "success":
        return None
    if failure is not None and expected != "success":
        if isinstance(expected, str) or expected[0] == failure[0]:
            return None
    return "got: %s; expected: %s" % (
        "success" if failure is None else text_of_failure(failure),
        expected if isinstance(expected, str) else text_of_failure(expected))


def compare_gradient(name, got, expected):
    if expected == "unknown" or (got is None and expected is None):
        return None
    if got is None or expected is None:
        texts = ["none" if one is None else "a gradient" for one in (got, expected)]
        return "parameter %s: got %s, expected %s" % (name, *texts)
    tolerance = None if TOLERANCES is None else TOLERANCES[name]
    for element, pair in enumerate(zip(got, floats(expected))):
        if not same(*pair, tolerance):
            return "parameter %s, element %d: got %r, expected %r" % (name, element, *pair)
    return None


def differences(number, rank, failure, gradients):
    expected = EXPECTED[number]
    calls = of_rank(expected["calls"], rank)
    found = [compare_call(failure, calls)]
    if failure is None and calls in ("success", "success, or fails"):
        found += [compare_gradient(name, gradients[name], of_rank(values, rank))
                  for name, values in expected["gradients"].items()]
    return ["step %d, rank %d, %s" % (number, rank, one) for one in found if one is not None]


def count_other_bits(reports):
    """Of those that are compared, elements that do not have every bit that is expected."""
    count = 0
    for rank, report in enumerate(reports):
        for number, (failure, gradients) in enumerate(report):
            for name, values in EXPECTED[number]["gradients"].items():
                expected = of_rank(values, rank)
                if failure is None and isinstance(expected, list) and gradients[name] is not None:
                    pairs = zip(gradients[name], floats(expected))
                    count += sum(not same(*pair, None) for pair in pairs)
    return count


def text_of(values):
    if values is None:
        return "none"
    shown = ", ".join(repr(value) for value in values[:6])
    return "[%s%s]" % (shown, ", ... %d in all" % len(values) if len(values) > 6 else "")


def judge(reports):
    """Prints what came out, up to the first step that failed somewhere, and what differs."""
    found = []
    for number in range(len(STEPS)):
        here = [(rank, report[number]) for rank, report in enumerate(reports)
                if number < len(report)]
        for rank, (failure, gradients) in here:
            if failure is not None:
                print("step %d, rank %d: %s" % (number, rank, text_of_failure(failure)))
            else:
                texts = ["%s %s" % (name, text_of(one)) for name, one in gradients.items()]
                print("step %d, rank %d: %s" % (number, rank, ", ".join(texts)))
            found += differences(number, rank, failure, gradients)
        if EXPECTED[number]["ends"] or any(failure for _, (failure, _) in here):
            break
    return found


def receive(rank, pipe, deadline):
    """A rank's report, or a text if there is none."""
    try:
        if pipe.poll(max(0, deadline - time.monotonic())):
            return pipe.recv()
        return "rank %d hangs" % rank
    except EOFError:
        return "the process of rank %d dies" % rank


def run_ranks(folder):
    context = torch.multiprocessing.get_context("spawn")
    all_are_done = context.Event()
    pipes, processes = [], []
    for rank in range(WORLD):
        receiver, sender = context.Pipe(duplex=False)
        arguments = (rank, folder, sender, all_are_done)
        processes.append(context.Process(target=train, args=arguments, daemon=True))
        processes[-1].start()
        sender.close()
        pipes.append(receiver)
    deadline = time.monotonic() + RUN_SECONDS
    reports = [receive(rank, pipe, deadline) for rank, pipe in enumerate(pipes)]
    all_are_done.set()
    for process in processes:
        process.join(10)
        if process.is_alive():
            process.kill()
    return reports


def main():
    print("PyTorch %s over Gloo, ranks: %d" % (torch.__version__, WORLD))
    with tempfile.TemporaryDirectory() as folder:
        reports = run_ranks(folder)
    wrong = [report for report in reports if isinstance(report, str)]
    for text in wrong:
        if text.startswith("cannot start"):
            print(text)
            return 2
    found = wrong + judge([[] if isinstance(one, str) else one for one in reports])
    for one in found[:20]:
        print("differs: " + one)
    if found:
        print("VERDICT: differs from what the contract has, in %d place(s)" % len(found))
        return 1
    print("VERDICT: as the contract has it")
    if TOLERANCES is not None:
        print("(to within rounding: %d elements have other last bits)" % count_other_bits(reports))
    return 0


if __name__ == "__main__":
    sys.exit(main())
