package queue

// rulesOfKeys are rules about keys.
var rulesOfKeys = map[string]string{
	"one of a key at a time, in order of submit": `
		lane l -1
		wait a l key=k; wait b l key=k; wait c l key=k; wait d l key=other
		starts a d
		why b key by=a pos=1
		why c key by=a pos=2
		leave a
		starts b
		leave b
		starts c`,
	"a key holds over lanes": `
		lane l 1; lane m 1
		wait a l key=k; wait b m key=k
		starts a
		why b key by=a pos=1
		leave a
		starts b`,
	"priority does not change the order of a key": `
		lane l -1
		wait a l key=k; wait b l key=k prio=9
		why b key by=a pos=1
		starts a
		leave a
		starts b`,
	"unless all who wait for it say so": `
		lane l -1
		wait a l key=k order=priority; wait b l key=k prio=9 order=priority; wait c l key=k prio=5
		starts a
		leave a; leave c
		wait d l key=k prio=10 order=priority
		starts d
		leave d
		starts b`,
	"one that may still be refused lets no other start": `
		lane l -1; lane m 0
		wait a l key=k order=priority; wait b m key=k prio=5 order=priority; keep c l key=k order=arriving
		starts
		why a key by=c pos=1
		leave c
		starts
		why a key by=b pos=1
		keep c l key=k order=arriving
		wait c l key=k
		starts a`,
	"nor does it when it asks for the order that the others have": `
		lane l -1
		wait a l key=k order=priority; wait b l key=k prio=5 order=priority
		keep c l key=k prio=9 order=priority; keep d l key=j order=arriving; wait e l key=j
		starts
		leave c; leave d
		starts b e`,
	"those with the same priority go in order of submit": `
		lane l -1
		wait a l key=k order=priority; wait b l key=k prio=1 order=priority; wait c l key=k order=priority since=-1m
		starts b
		leave b
		starts a
		leave a
		starts c`,
	"the head of a key has the place of the best behind it": `
		lane l 1
		wait a l key=k; wait b l prio=1; wait c l key=k prio=2
		starts a
		leave a
		starts c
		leave c
		starts b`,
	"also of one in another lane": `
		lane l 1; lane m 0
		wait a l key=k; wait b l prio=1; wait c m key=k prio=2
		starts a`,
	"and no longer when that one is gone": `
		lane l 1
		wait a l key=k; wait b l prio=1; wait c l key=k prio=2
		leave c
		starts b`,
	"the place is that of the first submitted of the most urgent": `
		lane l 1; lane m 0
		wait a l key=k since=1s; wait b l since=500ms; wait c m key=k
		starts b
		leave b
		starts a`,
	"keys change places when somebody joins or leaves them": `
		lane l 1
		wait a l key=i; wait b l key=j; wait c l key=k; wait d l key=k prio=1; wait e l key=j prio=2
		starts b
		leave b; leave e
		starts c
		leave c
		starts d
		leave d
		starts a`,
	"the first of a key that cannot start holds up the others": `
		lane l -1; lane m 1 paused; limit x 0
		wait a m key=k; wait b l key=k limits=x; wait c l key=k; wait d l key=k; wait e l key=other
		starts e
		why a lane_paused pos=1
		why c key by=a pos=2
		why d key by=a pos=3
		lane m 1
		starts a
		leave a
		starts
		why c key by=b pos=2
		limit x 1
		starts b
		leave b
		starts c
		leave c
		starts d`,
	"also by priority": `
		lane l -1; lane m 1 paused
		wait a l key=k order=priority; wait b m key=k prio=1 order=priority; wait c l key=k prio=2 order=priority
		starts c
		leave c
		starts
		why a key by=b pos=1
		lane m 1
		starts b
		leave b
		starts a`,
	"unless all of the key ask for any order": `
		lane l -1; lane m 1 paused; limit x 0
		wait a m key=k order=any; wait b l key=k limits=x order=any; wait c l key=k order=any; wait d l key=k order=any
		starts c
		lane m 1
		leave c
		starts a
		leave a
		starts d
		wait e m key=k; wait f l key=k order=any; lane m 0
		leave b; leave d
		starts
		why f key by=e pos=1`,
	"who keeps its turn holds up those behind it": `
		lane l -1
		keep a l key=k; wait b l key=k; wait c l key=k
		starts
		why b key by=a pos=1
		why a does not wait
		wait a l key=k
		starts a
		leave a
		starts b
		keep b l key=k
		starts
		leave b
		starts c`,
	"and not those before it": `
		lane l -1
		keep b l key=k prio=9; wait a l key=k
		starts a
		leave a
		wait c l key=k
		why c key by=b pos=1
		leave b
		starts c`,
	"a turn that is kept has its priority": `
		lane l -1
		keep a l key=k prio=5 order=priority; wait b l key=k prio=4 order=priority; wait c l key=k prio=6 order=priority
		starts c
		leave c
		starts
		why b key by=a pos=1
		keep a l key=k prio=3 order=priority
		starts b`,
	"who has begun is first of its key": `
		lane l -1
		keep c l key=k begun order=priority; wait a l key=k order=priority prio=9; wait b l key=k order=priority prio=5
		starts
		why a key by=c pos=1
		wait c l key=k begun order=priority
		starts c
		leave c
		starts a`,
	"with any order no turn is kept": `
		lane l -1
		keep a l key=k order=any begun; wait b l key=k order=any
		starts b`,
}
