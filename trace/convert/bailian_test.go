package convert

import "testing"

// Row 7 goes on from 3, and so does 9, which therefore begins a session beside it. The parent of 5 came before the file.
func TestBailian(t *testing.T) {
	c, err := openText(`{"chat_id":3,"parent_chat_id":-1,"timestamp":1.5,"input_length":40,"output_length":9,"type":"text","turn":1,"hash_ids":[1,2,3]}
{"chat_id":9,"parent_chat_id":3,"timestamp":20.5,"input_length":48,"output_length":1,"type":"search","turn":2,"hash_ids":[1,2,8]}
{"chat_id":7,"parent_chat_id":3,"timestamp":11.5,"input_length":50,"output_length":2,"type":"text","turn":2,"hash_ids":[1,2,4,5]}
{"chat_id":5,"parent_chat_id":2,"timestamp":12,"input_length":16,"output_length":0,"type":"file","turn":2,"hash_ids":[1]}`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c.BlockSize != 16 || c.Format != FormatBailian {
		t.Errorf("format %s, blocks of %d", c.Format, c.BlockSize)
	}
	checkText(t, describe(c), `
3 parent="" class="text" scope=0
  3:1 0s..? 40+9 [1 2 3] /user_message
  7:3 10s..? 50+2 [1 2 4 5] waits=3+0s,sequence,false waits=3+10s,sequence,true /user_message
5 parent="" class="file" scope=0
  5:4 10.5s..? 16+0 [1] /user_message
9 parent="3" class="search" scope=0
  9:2 19s..? 48+1 [1 2 8] waits=3+0s,sequence,false waits=3+19s,sequence,true /user_message
`)
	if err := c.Link(); err != nil {
		t.Error(err)
	}
}

func FuzzBailian(f *testing.F) {
	fuzzFormat(f, `{"chat_id":159,"parent_chat_id":55,"timestamp":61.114,"input_length":20,"output_length":132,"type":"text","turn":2,"hash_ids":[1,2]}`,
		`{"chat_id":1,"parent_chat_id":2,"timestamp":1,"input_length":20,"output_length":1}`+"\n"+
			`{"chat_id":2,"parent_chat_id":1,"timestamp":1,"input_length":20,"output_length":1}`)
}
