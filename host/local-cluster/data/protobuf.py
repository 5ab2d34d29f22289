"""Makes protobuf.zst from Kubernetes' Go modules: for each struct of a served version a line `GROUP/VERSION.NAME` and its fields.

    python3 protobuf.py FOLDER_OF_K8S.IO/API FOLDER_OF_K8S.IO/APIMACHINERY protobuf.zst

It needs the program zstd. `go mod download -json k8s.io/api@v0.36.3` prints the folder of a module.
"""
import os,re,glob,subprocess,sys
API=sys.argv[1]
META=sys.argv[2]+'/pkg/apis/meta/v1'
GROUP={}
pk={}  # import path -> name
dirs=[('meta/v1',META)]
for d in sorted(glob.glob(API+'/*/v*')):
    v=os.path.basename(d)
    if re.fullmatch(r'v\d+',v): dirs.append((os.path.basename(os.path.dirname(d))+'/'+v,d))
structs={};named={}
for pkg,d in dirs:
    for f in glob.glob(d+'/*.go'):
        if f.endswith('_test.go') or 'generated' in f: continue
        src=open(f).read()
        # the module's name for imports
        imports={}
        for m in re.finditer(r'^\s*(\w+)?\s*"k8s\.io/(?:api|apimachinery/pkg/apis)/([\w/]+)"',src,re.M):
            p=m.group(2); imports[m.group(1) or p.split('/')[-1]]=p
        for m in re.finditer(r'^type (\w+) (?!struct|interface)([\w\.\[\]\*]+)',src,re.M): named[pkg,m.group(1)]=(m.group(2),imports)
        for m in re.finditer(r'^type (\w+) struct \{(.*?)^\}',src,re.M|re.S): structs[pkg,m.group(1)]=(m.group(2),imports)
SPECIAL={'metav1.Time':'T','metav1.MicroTime':'U','resource.Quantity':'Q','intstr.IntOrString':'I','runtime.RawExtension':'R','metav1.FieldsV1':'R','metav1.Duration':'D'}
BASE={'string':'s','int32':'i','int64':'i','int':'i','uint32':'i','uint64':'i','bool':'b','[]byte':'y','float64':'d','types.UID':'s','types.NodeName':'s'}
def scalar(pkg,t,imports):
    q=t if '.' in t else None
    if pkg=='meta/v1' and t in('Time','MicroTime','Duration','FieldsV1'): t='metav1.'+t
    if t in SPECIAL: return SPECIAL[t]
    if t in BASE: return BASE[t]
    p,n=pkg,t
    if '.' in t:
        a,n=t.split('.'); p=imports.get(a)
        if p is None: return None
    if (p,n) in structs: return 'm'+p+'.'+n
    if (p,n) in named:
        u,i=named[p,n]
        if u.startswith('map['): return field(p,u,i)
        if u.startswith('[]') and u!='[]byte': return 'X'
        return scalar(p,u,i)
    return None
def field(pkg,t,imports):
    mods=''
    if t.startswith('*'): mods+='*'; t=t[1:]
    if t.startswith('map['):
        m=re.match(r'map\[[\w\.]+\](.*)',t); s=scalar(pkg,m.group(1),imports)
        if m.group(1)=='[]string': s='X'
        return s and mods+'%'+s
    if t.startswith('[]') and t!='[]byte': s=scalar(pkg,t[2:].lstrip('*'),imports); return s and mods+'+'+s
    s=scalar(pkg,t,imports)
    return s and mods+s
out=[];bad=[]
for (pkg,name),(body,imports) in sorted(structs.items()):
    fs=[]
    for l in body.split('\n'):
        m=re.match(r'\s*(?:(\w+)\s+)?([\w\.\[\]\*]+)\s+`(.*)`',l)
        if not m: continue
        tags=m.group(3)
        pb=re.search(r'protobuf:"(\w+),(\d+),',tags); js=re.search(r'json:"([^"]*)"',tags)
        if not pb or not js: continue
        jn=js.group(1).split(',')
        k=field(pkg,m.group(2),imports)
        if k is None: bad.append((pkg,name,l.strip()[:90])); continue
        keep='' if any(o in('omitempty','omitzero') for o in jn[1:]) else '!'
        if 'inline' in jn[1:] and not jn[0]: jn[0]='-'; keep=''
        fs.append(f'{pb.group(2)} {jn[0]} {keep}{k}')
    if fs: out.append(f'{pkg}.{name}\n'+''.join(f' {x}\n' for x in fs))
text=''.join(out)
subprocess.run(['zstd','-19','-q','-f','-o',sys.argv[3]],input=text.encode(),check=True)
print(len(text),'bytes,',len(out),'structs; fields that were not understood:',*bad,sep='\n')
