# ---- what one rank does ----


def wrap(model):
    dist._DEFAULT_FIRST_BUCKET_BYTES = FIRST_BUCKET_BYTES
    ddp = DistributedDataParallel(model, **OPTIONS)
    if ENDS_BY_HAND:
        if not hasattr(ddp, "finalize_backward"):
            raise RuntimeError("this PyTorch has no DistributedDataParallel.finalize_backward()")
        ddp.require_manual_backward_finalization = True
    if HOOK is not None:
        ddp.register_comm_hook(None, getattr(default_hooks, HOOK))
    return ddp


def tensor_of(constant):
    """The elements; of a sparse parameter's use the rows that are looked up, and their elements."""
    if isinstance(constant, tuple):
        return torch.tensor(constant[0], dtype=torch.long), tensor_of(constant[1])
    return torch.tensor(constant, dtype=torch.float64)


def run_forward(ddp, kind, forward, constants):
    arguments = (torch.zeros((), dtype=torch.float64, requires_grad=True), Call(forward, constants))
    if kind == "synced":
        return ddp(*arguments)
    with ddp.no_sync() if kind == "no_sync" else torch.no_grad():
        return ddp(*arguments)


def run_step(ddp, step, work, constants, held):
    """None, or which call failed and what it said. held: two lists of outputs of the last step."""
    place = "forward"
    kept = []
    backwards = [call for call in work["order"] if "backward" in call[0]]
    done = 0  # backwards
    try:
        for name, *rest in work["order"]:
            if name == "zero_grad" and step["zero_grad"] != "not":
                ddp.zero_grad(set_to_none=step["zero_grad"] == "to none")
            if name == "forward":
                number, kind = rest
                outputs = run_forward(ddp, kind, work["forwards"][number], constants)
                if kind != "no_grad" and not work["forwards"][number]["discard"]:
                    kept += outputs
                del outputs
            if name == "drop":
                kept = [None if i in rest[0] else output for i, output in enumerate(kept)]
            if "backward" in name:
                place = "backward %d" % done
                done += 1
                is_last = done == len(backwards)
                if name == "held_backward":
                    run_held_backward(held[rest[0]], rest[1], not is_last)
                    continue
                chosen = [kept[root] for root in rest[0]]
                if is_last and not work["keep_outputs"]:
                    kept = []  # the rank lets go of outputs that it did not use
                ones = [torch.ones_like(output) for output in chosen]
                torch.autograd.backward(chosen, ones, retain_graph=not is_last)
                if ENDS_BY_HAND and is_last and step["kind"] == "synced":
                    ddp.finalize_backward()
        if work["order"]:  # the rank does not skip the step
            held[:] = [[kept[each] for each in part] for part in work.get("held", ([], []))]
    except Exception as error:
        return place, (str(error).strip() or repr(error)).splitlines()[0]
    return None


def run_held_backward(outputs, roots, retain_graph):
    places = {root % len(outputs) for root in roots or range(len(outputs))} if outputs else ()
    if places:
        chosen = [outputs[place] for place in sorted(places)]
        ones = [torch.ones_like(output) for output in chosen]
        torch.autograd.backward(chosen, ones, retain_graph=retain_graph)


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
        ddp = wrap(model)
    except Exception as error:
        reports.send("cannot start: " + str(error))
        return
    seen = []
    held = [[], []]
    for number, step in enumerate(STEPS):
        constants = {name: tensor_of(values[rank]) for name, values in CONSTANTS[number].items()
                     if rank in values}
        work = step["variants"][rank % len(step["variants"])]
        failure = run_step(ddp, step, work, constants, held)
        seen.append((failure, gradients_of(model)))
        if failure is not None or "calls" in EXPECTED[number]:
            break
    reports.send(seen)
    if seen and seen[-1][0] is not None:
        time.sleep(1)  # peers that are still in an earlier collective can end it
    else:
        all_are_done.wait(RUN_SECONDS)
    os._exit(0)  # the collectives of a failed step may never end


# ---- the verdict ----


def same(got, expected, tolerance):
    if math.isnan(got) or math.isnan(expected):
        return math.isnan(got) and math.isnan(expected)
    if tolerance is None or math.isinf(got) or math.isinf(expected):
        return got == expected and math.copysign(1, got) == math.copysign(1, expected)
    return abs(got - expected) <= tolerance


def compare_call(failure, expected):
    """None if the rank's calls went as expected."""
    got = "success" if failure is None else "%s fails: %s" % failure
    if expected == SUCCESS_OR_PEER_ERROR:
        return None
    if failure is None and expected == SUCCESS:
        return None
    if failure is not None and (expected == PEER_ERROR or expected[0] == failure[0]):
        return None
    return "got: %s; expected: %s" % (got, " fails: ".join(expected))


def compare_gradient(name, got, expected):
    if expected is UNKNOWN or (got is None and expected is None):
        return None
    if got is None or expected is None:
        texts = ["none" if one is None else "a gradient" for one in (got, expected)]
        return "parameter %s: got %s, expected %s" % (name, *texts)
    tolerance = None if TOLERANCES is None else TOLERANCES[name]
    for element, pair in enumerate(zip(got, expected)):
        if not same(*pair, tolerance):
            return "parameter %s, element %d: got %r, expected %r" % (name, element, *pair)
    return None


def differences(number, rank, failure, gradients):
    expected = EXPECTED[number]
    calls = expected["calls"][rank] if "calls" in expected else SUCCESS
    found = [compare_call(failure, calls)]
    if failure is None and calls in (SUCCESS, SUCCESS_OR_PEER_ERROR):
        found += [compare_gradient(name, gradients[name], values[rank])
                  for name, values in expected["gradients"].items()]
    return ["step %d, rank %d, %s" % (number, rank, one) for one in found if one is not None]


def count_other_bits(reports):
    """Of those that are compared, elements that do not have every bit that is expected."""
    count = 0
    for rank, report in enumerate(reports):
        for number, (failure, gradients) in enumerate(report):
            for name, values in EXPECTED[number]["gradients"].items():
                expected = values[rank]
                if failure is None and isinstance(expected, list) and gradients[name] is not None:
                    count += sum(not same(*pair, None) for pair in zip(gradients[name], expected))
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
                print("step %d, rank %d: %s fails: %s" % (number, rank, *failure))
            else:
                texts = ["%s %s" % (name, text_of(one)) for name, one in gradients.items()]
                print("step %d, rank %d: %s" % (number, rank, ", ".join(texts)))
            found += differences(number, rank, failure, gradients)
        if "calls" in EXPECTED[number] or any(failure for _, (failure, _) in here):
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
