// Follows the ConfigMaps of a namespace with an informer of client-go or of controller-runtime, as a controller would:
//
//	informers client-go|controller-runtime NAMESPACE
//
// For each line of input it prints a line of JSON: the versions of the objects by name, as the informer's store has them, and
// as its events said. KUBECONFIG names the cluster.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

type versions map[string]string

// An informer: what its store has now.
type store func() (versions, error)

// What events said so far.
type events struct {
	sync.Mutex
	versions
}

func main() {
	if err := follow(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func follow() error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	start := map[string]func(*rest.Config, string, *events) (store, error){
		"client-go": clientGo, "controller-runtime": controllerRuntime,
	}[os.Args[1]]
	seen := &events{versions: versions{}}
	now, err := start(config, os.Args[2], seen)
	if err != nil {
		return fmt.Errorf("start the informer: %w", err)
	}
	output := json.NewEncoder(os.Stdout)
	for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
		has, err := now()
		if err != nil {
			return fmt.Errorf("read the store: %w", err)
		}
		seen.Lock()
		err = output.Encode([]versions{has, seen.versions})
		seen.Unlock()
		if err != nil {
			return fmt.Errorf("print the versions: %w", err)
		}
	}
	return nil
}

func clientGo(config *rest.Config, namespace string, seen *events) (store, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	maps := factory.Core().V1().ConfigMaps()
	if _, err := maps.Informer().AddEventHandler(seen); err != nil {
		return nil, err
	}
	factory.Start(context.Background().Done())
	factory.WaitForCacheSync(context.Background().Done())
	return func() (versions, error) {
		objects, err := maps.Lister().List(labels.Everything())
		has := versions{}
		for _, object := range objects {
			has[object.Name] = object.ResourceVersion
		}
		return has, err
	}, nil
}

func controllerRuntime(config *rest.Config, namespace string, seen *events) (store, error) {
	options := cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}}
	objects, err := cache.New(config, options)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	go func() {
		if err := objects.Start(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "run the cache:", err)
			os.Exit(1)
		}
	}()
	informer, err := objects.GetInformer(ctx, &corev1.ConfigMap{})
	if err != nil {
		return nil, err
	}
	if _, err := informer.AddEventHandler(seen); err != nil {
		return nil, err
	}
	objects.WaitForCacheSync(ctx)
	return func() (versions, error) {
		var list corev1.ConfigMapList
		err := objects.List(ctx, &list)
		has := versions{}
		for _, object := range list.Items {
			has[object.Name] = object.ResourceVersion
		}
		return has, err
	}, nil
}

func (seen *events) OnAdd(object any, _ bool) { seen.put(object) }

func (seen *events) OnUpdate(_, object any) { seen.put(object) }

func (seen *events) OnDelete(object any) {
	if unknown, missed := object.(toolscache.DeletedFinalStateUnknown); missed {
		object = unknown.Obj
	}
	seen.Lock()
	defer seen.Unlock()
	delete(seen.versions, object.(*corev1.ConfigMap).Name)
}

func (seen *events) put(object any) {
	changed := object.(*corev1.ConfigMap)
	seen.Lock()
	defer seen.Unlock()
	seen.versions[changed.Name] = changed.ResourceVersion
}
