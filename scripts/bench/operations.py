"""Sections of `make bench` that measure single operations beside their ceilings, in the same topology."""

from measure import row

# Directories of the tree over which files are spread: 1 + 10 + 100 + 1000; and where many clients open all of them first, up to 100.
TREE, SMALL_TREE = ("-b", 10, "-z", 3), ("-b", 10, "-z", 2)

# Seconds of one look at a ceiling.
LOOK = 0.7

# Files of the store that is measured alone, and operations of each kind. (Its own create does not depend on how many files there are; a
# million would have to be made in every round.)
STORE_FILES, STORE_ITEMS = 100_000, 10_000


def echo(bench, waiting, servers, clients, depth):
    found = bench.json("echo", "--servers", servers, "--clients", clients, "--depth", depth, "--waiting", waiting, "--seconds", LOOK)
    return {kind: found[f"{kind}-{waiting}"] for kind in ("bare", "reactor")}


def null(cluster, clients=1, depth=1, sync=False):
    more = ["--sync"] if sync else []
    found = cluster.json("null", "--clients", clients, "--depth", depth, "--waiting", cluster.waiting, "--seconds", LOOK, *more)
    return found["null-sync" if sync else "null"]


def store(bench):
    files = min(STORE_FILES, bench.files)
    return bench.json("store", "--at", bench.work, "--files", files, "-n", min(STORE_ITEMS, bench.files))["create"]


class Files:
    """Files in a tree of a cluster, some clients to look at them and to make more."""

    def __init__(self, bench, cluster, clients, depth, tree=TREE, there=None):
        self.cluster, self.tree = cluster, tree
        self.each = (bench.files if there is None else there) // clients
        self.clients = ("--clients", clients, "--depth", depth, "--waiting", cluster.waiting)
        self.choice = 0
        cluster.fill(self.each * clients, "/tree", *tree, clients=clients)

    def mdtest(self, *options):
        return self.cluster.json("mdtest", "-F", *options, *self.clients, "-d", "/tree", *self.tree)

    def stat(self, accesses):
        """Others at random each time."""
        self.choice += 1
        return self.mdtest("-T", "-R", "--seed", self.choice, "-n", self.each, "--accesses", min(accesses, self.each))["file-stat"]

    def create(self, count):
        """More, in the same directories; they are removed again."""
        return self.mdtest("-C", "-r", "--from", self.each, "-n", min(count, max(self.each, 1000)))["file-create"]

    def create_together(self, count):
        """In one new directory, which one server has."""
        count = min(count, max(self.each, 1000))
        return self.cluster.json("mdtest", "-F", "-C", "-r", "-n", count, *self.clients, "-d", "/together")["file-create"]


def of(values, field):
    return [value[field] for value in values]


def ceilings(bench):
    rows = []
    for waiting in ("blocking", "polling"):
        with bench.cluster(1, waiting=waiting) as cluster:
            for depth, field, unit, target in ((1, "p50_us", "us", ("<=", 1.3)), (64, "ops_per_s", "/s", (">=", 0.5))):

                def alone():
                    with cluster.asleep():
                        return echo(bench, waiting, 1, 1, depth)

                seen = bench.turns({"null": lambda: null(cluster, depth=depth), "echo": alone})
                ours = of(seen["null"], field)
                what = f"`null`, 1 server, 1 client, depth {depth}, {waiting}, {'p50' if depth == 1 else 'rate'}"
                for kind, name, wanted in (("bare", "bare TCP", target), ("reactor", "TCP through Pando's frames and event loops", None)):
                    theirs = of(of(seen["echo"], kind), field)
                    rows.append(row(what, ours, unit, wanted, f"`echo`, {name}", theirs))
    return rows


def single(bench):
    rows = []
    for waiting, stat_target, looks, creates in (("blocking", 1.2, 20_000, 10_000), ("polling", 1.5, 60_000, 20_000)):
        with bench.cluster(1, waiting=waiting) as cluster:
            files = Files(bench, cluster, 1, 1)

            def alone(work):
                with cluster.asleep():
                    return work()

            measures = {
                "null": lambda: null(cluster),
                "stat": lambda: files.stat(looks),
                "create": lambda: files.create(creates),
                "store": lambda: alone(lambda: store(bench)),
            }
            if waiting == "polling" and bench.ext4:
                posix = ("posix", bench.ext4, "-n", min(10_000, bench.files), "--phases", "create")
                measures["ext4"] = lambda: alone(lambda: bench.json(*posix)["create"])
            seen = {name: of(values, "p50_us") for name, values in bench.turns(measures).items()}
            both = [n + 1.25 * s for n, s in zip(seen["null"], seen["store"])]
            rows += [
                row(f"stat, {waiting}, p50", seen["stat"], "us", ("<=", stat_target), "`null`", seen["null"]),
                row(f"create, {waiting}, p50", seen["create"], "us", ("<=", 1.0), "`null` + 1.25 x the store's create", both),
                row(f"the store's create, beside {waiting}, p50", seen["store"], "us"),
            ]
            if "ext4" in seen:
                rows.append(row("create, polling, p50", seen["create"], "us", ("<=", 1.1), "create on ext4, one process, p50", seen["ext4"]))
    return rows


def several(bench):
    clients, depth = 8, 64
    with bench.cluster(4, waiting="blocking") as cluster:
        files = Files(bench, cluster, clients, depth, SMALL_TREE)
        seen = bench.turns({
            "echo": lambda: echo(bench, "blocking", 4, clients, depth)["bare"],
            "null": lambda: null(cluster, clients, depth),
            "stat": lambda: files.stat(40_000),
            "create": lambda: files.create(12_000),
            "together": lambda: files.create_together(12_000),
            "store": lambda: store(bench),
        })
    rates = {name: of(values, "ops_per_s") for name, values in seen.items()}
    cpu = {name: [sum(value.values()) for value in of(values, "cpu_us_per_op")] for name, values in seen.items() if name != "stat"}
    least = [n + 1.5 * s for n, s in zip(cpu["null"], cpu["store"])]
    return [
        row("`null`, rate", rates["null"], "/s", None, "`echo`, bare TCP", rates["echo"]),
        row("stat, rate", rates["stat"], "/s", (">=", 0.5), "`null`", rates["null"]),
        row("create, rate", rates["create"], "/s", (">=", 80_000)),
        row("create, rate", rates["create"], "/s", None, "`null`", rates["null"]),
        row("create in one directory, rate", rates["together"], "/s", None, "create in all of them", rates["create"]),
        row("create, processor time of clients and servers", cpu["create"], "us", ("<=", 1.0), "`null`'s + 1.5 x that of the store's create", least),
        row("create in one directory, processor time", cpu["together"], "us", None, "create in all of them", cpu["create"]),
        row("`null`, processor time of clients and servers", cpu["null"], "us"),
        row("the store's create, processor time", cpu["store"], "us"),
    ]


def synced(bench):
    clients, depth = 8, 64
    with bench.cluster(4, "sync", "blocking") as cluster:
        files = Files(bench, cluster, clients, depth, SMALL_TREE, there=clients * 111)
        seen = bench.turns({
            "null": lambda: null(cluster, clients, depth, sync=True),
            "create": lambda: files.create(6_000),
            "together": lambda: files.create_together(6_000),
        })
    rates = {name: of(values, "ops_per_s") for name, values in seen.items()}
    return [
        row("creates for each sync of a log", of(seen["create"], "ops_per_sync"), "", (">=", 20)),
        row("create, rate", rates["create"], "/s", None, "`null --sync`", rates["null"]),
        row("creates for each sync, in one directory", of(seen["together"], "ops_per_sync"), ""),
        row("create in one directory, rate", rates["together"], "/s", None, "create in all of them", rates["create"]),
    ]
