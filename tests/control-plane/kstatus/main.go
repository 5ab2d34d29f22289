// Prints what kstatus says of the Kubernetes object on standard input: a line of JSON with status and message. The tests'
// judge of conditions; it knows nothing of mortise.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

func main() {
	if err := judge(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func judge(in io.Reader, out io.Writer) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("read the object: %w", err)
	}
	var object unstructured.Unstructured
	if err := object.UnmarshalJSON(text); err != nil {
		return fmt.Errorf("parse the object: %w", err)
	}
	result, err := status.Compute(&object)
	if err != nil {
		return fmt.Errorf("compute its status: %w", err)
	}
	return json.NewEncoder(out).Encode(map[string]string{"status": string(result.Status), "message": result.Message})
}
