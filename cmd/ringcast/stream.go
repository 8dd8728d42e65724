package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"
)

type streamCmd struct {
	Create   streamCreate   `cmd:"" help:"Create a stream, or change its retention."`
	Update   streamUpdate   `cmd:"" help:"Change the retention of a stream. It applies at once."`
	List     streamList     `cmd:"" aliases:"ls" help:"List the streams that the token may manage."`
	Describe streamDescribe `cmd:"" aliases:"show" help:"Show everything about a stream."`
	Delete   streamDelete   `cmd:"" aliases:"rm" help:"Delete a stream and its records."`
}

// streamInfo is a stream as the admin API describes it.
type streamInfo struct {
	Tenant           string      `json:"tenant"`
	Namespace        string      `json:"namespace"`
	Stream           string      `json:"stream"`
	Shards           uint32      `json:"shards"`
	Durable          bool        `json:"durable"`
	Fsync            string      `json:"fsync,omitempty"`
	Routing          string      `json:"routing,omitempty"`
	RetentionBytes   *int64      `json:"retention_bytes,omitempty"`
	RetentionSeconds *int64      `json:"retention_seconds,omitempty"`
	Retention        *retention  `json:"retention,omitempty"`
	ID               uint64      `json:"id"`
	Created          time.Time   `json:"created"`
	Ack              string      `json:"ack,omitempty"`
	ShardInfo        []shardInfo `json:"shard_info,omitempty"`
}

// retention is the bounds in force, of each shard; 0 = none.
type retention struct {
	Bytes   int64 `json:"bytes,omitempty"`
	Seconds int64 `json:"seconds,omitempty"`
}

// String says it in words, also of nil.
func (r *retention) String() string {
	var parts []string
	if r != nil && r.Bytes > 0 {
		parts = append(parts, size(float64(r.Bytes))+" per shard")
	}
	if r != nil && r.Seconds > 0 {
		parts = append(parts, (time.Duration(r.Seconds) * time.Second).String())
	}
	if parts == nil {
		return "unlimited"
	}
	return strings.Join(parts, ", ")
}

type shardInfo struct {
	Shard       uint32 `json:"shard"`
	Base        uint64 `json:"base"`
	Tail        uint64 `json:"tail"`
	Subscribers int    `json:"subscribers"`
	Dropped     uint64 `json:"dropped"`
	Failed      string `json:"failed,omitempty"`
}

type streamCreate struct {
	Name           string        `arg:"" help:"Name of the stream."`
	Shards         uint32        `default:"1" help:"Number of shards. It cannot be changed later."`
	Memory         bool          `help:"Keep records in memory only; a restart loses them. Cannot be changed later."`
	Fsync          string        `enum:"on_commit,periodic,none," default:"" help:"When records are forced to disk: on_commit (before they are acknowledged; the default), periodic, none."`
	Routing        string        `enum:"modulo,jump_hash," default:"" help:"How keys are mapped to shards: modulo (the default) or jump_hash. Cannot be changed later."`
	RetentionBytes int64         `placeholder:"N" help:"Bytes to keep per shard. Default: all."`
	Retention      time.Duration `aliases:"retention-age" help:"How long records are kept. Default: for ever."`
}

// streamBody is what PUT takes.
type streamBody struct {
	Shards           uint32 `json:"shards"`
	Durable          bool   `json:"durable"`
	Fsync            string `json:"fsync,omitempty"`
	Routing          string `json:"routing,omitempty"`
	RetentionBytes   *int64 `json:"retention_bytes,omitempty"`
	RetentionSeconds *int64 `json:"retention_seconds,omitempty"`
}

func (c *streamCreate) Run(ctx context.Context, env *environment, s *Settings) error {
	if c.Retention != 0 && c.Retention < time.Second || c.RetentionBytes < 0 {
		return usageError(errors.New("--retention wants at least 1s, --retention-bytes at least 1"))
	}
	api, r, err := s.admin()
	if err != nil {
		return err
	}
	body := streamBody{Shards: c.Shards, Durable: !c.Memory, Fsync: c.Fsync, Routing: c.Routing}
	if c.RetentionBytes > 0 {
		body.RetentionBytes = &c.RetentionBytes
	}
	if c.Retention > 0 {
		seconds := int64(c.Retention / time.Second)
		body.RetentionSeconds = &seconds
	}
	var info streamInfo
	status, err := api.do(ctx, http.MethodPut, r.streamPath(c.Name), body, &info)
	if err != nil {
		return err
	}
	if env.json {
		return env.emit(info)
	}
	word := "exists"
	if status == http.StatusCreated {
		word = "created"
	}
	_, err = fmt.Fprintf(env.stdout, "stream %s %s: %s\n", c.Name, word, info.summary())
	return err
}

type streamUpdate struct {
	Name           string         `arg:"" help:"Name of the stream."`
	RetentionBytes *int64         `placeholder:"N" help:"Bytes to keep per shard; 0 = no bound of the stream's own."`
	Retention      *time.Duration `aliases:"retention-age" placeholder:"DURATION" help:"How long records are kept; 0s = no bound of the stream's own."`
}

// Run changes what is named and leaves the rest of the definition as it is.
func (c *streamUpdate) Run(ctx context.Context, env *environment, s *Settings) error {
	if c.RetentionBytes == nil && c.Retention == nil {
		return usageError(errors.New("give --retention-bytes or --retention"))
	}
	if c.RetentionBytes != nil && *c.RetentionBytes < 0 || c.Retention != nil && *c.Retention != 0 && *c.Retention < time.Second {
		return usageError(errors.New("--retention wants 0s or at least 1s, --retention-bytes 0 or more"))
	}
	api, r, err := s.admin()
	if err != nil {
		return err
	}
	var i streamInfo
	if _, err := api.do(ctx, http.MethodGet, r.streamPath(c.Name), nil, &i); err != nil {
		return err
	}
	body := streamBody{
		Shards: i.Shards, Durable: i.Durable, Fsync: i.Fsync, Routing: i.Routing,
		RetentionBytes: i.RetentionBytes, RetentionSeconds: i.RetentionSeconds,
	}
	if c.RetentionBytes != nil {
		if body.RetentionBytes = c.RetentionBytes; *c.RetentionBytes == 0 {
			body.RetentionBytes = nil
		}
	}
	if c.Retention != nil {
		body.RetentionSeconds = nil
		if seconds := int64(*c.Retention / time.Second); seconds > 0 {
			body.RetentionSeconds = &seconds
		}
	}
	var info streamInfo
	if _, err := api.do(ctx, http.MethodPut, r.streamPath(c.Name), body, &info); err != nil {
		return err
	}
	if env.json {
		return env.emit(info)
	}
	_, err = fmt.Fprintf(env.stdout, "stream %s: retention %s\n", c.Name, info.Retention)
	return err
}

func (i *streamInfo) summary() string {
	kind := "in memory"
	if i.Durable {
		kind = "durable, fsync " + i.Fsync
	}
	noun := "shards"
	if i.Shards == 1 {
		noun = "shard"
	}
	return fmt.Sprintf("%d %s, %s", i.Shards, noun, kind)
}

type streamList struct {
	AllNamespaces bool `short:"A" help:"Of every namespace."`
}

func (c *streamList) Run(ctx context.Context, env *environment, s *Settings) error {
	api, r, err := s.admin()
	if err != nil {
		return err
	}
	q := url.Values{"tenant": {r.tenant}}
	if !c.AllNamespaces {
		q.Set("namespace", r.namespace)
	}
	var list struct {
		Streams []streamInfo `json:"streams"`
	}
	if _, err := api.do(ctx, http.MethodGet, "/v1/streams?"+q.Encode(), nil, &list); err != nil {
		return err
	}
	if env.json {
		for _, i := range list.Streams {
			if err := env.emit(i); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(env.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tSTREAM\tSHARDS\tSTORAGE\tRECORDS\tSUBSCRIBERS")
	for _, i := range list.Streams {
		storage := "memory"
		if i.Durable {
			storage = i.Fsync
		}
		var records uint64
		subscribers := 0
		for _, sh := range i.ShardInfo {
			records += sh.Tail - sh.Base
			subscribers += sh.Subscribers
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%d\n", i.Namespace, i.Stream, i.Shards, storage, count(records), subscribers)
	}
	return w.Flush()
}

type streamDescribe struct {
	Name string `arg:"" help:"Name of the stream."`
}

func (c *streamDescribe) Run(ctx context.Context, env *environment, s *Settings) error {
	api, r, err := s.admin()
	if err != nil {
		return err
	}
	var i streamInfo
	if _, err := api.do(ctx, http.MethodGet, r.streamPath(c.Name), nil, &i); err != nil {
		return err
	}
	if env.json {
		return env.emit(i)
	}
	w := tabwriter.NewWriter(env.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "stream\t%s/%s/%s\n", i.Tenant, i.Namespace, i.Stream)
	fmt.Fprintf(w, "id\t%d\ncreated\t%s\n", i.ID, i.Created.UTC().Format(time.RFC3339))
	fmt.Fprintf(w, "storage\t%s\n", i.summary())
	if i.Ack != "" {
		fmt.Fprintf(w, "ack means\t%s\n", i.Ack)
	}
	if i.Shards > 1 {
		fmt.Fprintf(w, "routing\t%s\n", i.Routing)
	}
	fmt.Fprintf(w, "retention\t%s\n", i.Retention)
	for _, sh := range i.ShardInfo {
		fmt.Fprintf(w, "shard %d\toffsets %d to %d, %d subscribers, %d dropped", sh.Shard, sh.Base, sh.Tail, sh.Subscribers, sh.Dropped)
		if sh.Failed != "" {
			fmt.Fprintf(w, ", FAILED: %s", sh.Failed)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

type streamDelete struct {
	Name string `arg:"" help:"Name of the stream."`
	Yes  bool   `short:"y" help:"Do not ask."`
}

func (c *streamDelete) Run(ctx context.Context, env *environment, s *Settings) error {
	api, r, err := s.admin()
	if err != nil {
		return err
	}
	if !c.Yes && terminal(env.stdin) {
		fmt.Fprintf(env.stderr, "Delete stream %s/%s/%s and all its records? [y/N] ", r.tenant, r.namespace, c.Name)
		answer, _ := bufio.NewReader(env.stdin).ReadString('\n')
		if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
			return errors.New("not deleted")
		}
	}
	if _, err := api.do(ctx, http.MethodDelete, r.streamPath(c.Name), nil, nil); err != nil {
		return err
	}
	if env.json {
		return env.emit(map[string]string{"deleted": c.Name})
	}
	_, err = fmt.Fprintf(env.stdout, "stream %s deleted\n", c.Name)
	return err
}
